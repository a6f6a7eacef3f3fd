package integration_test

import (
	"bufio"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the table of docs/conformance.md")

// mostOpen is the number of requirements that may be open. It only ever gets smaller.
const mostOpen = 0

// requirement is a line of testdata/requirements.txt or testdata/open.txt: an ID and a sentence.
type requirement struct{ id, text string }

// name is that of the requirement's sub-test.
func (r requirement) name() string {
	return r.id + "_" + strings.ReplaceAll(strings.TrimSuffix(r.text, "."), " ", "_")
}

// allProofs are the proofs of all parts, by the ID of the requirement.
func allProofs() map[string]func(*testing.T) {
	proofs := map[string]func(*testing.T){}
	for _, part := range []map[string]func(*testing.T){
		loopProofs, profileProofs, environmentProofs, truncationProofs, eventProofs, subagentProofs,
		parityProofs, smokeProofs, appendixProofs,
	} {
		maps.Copy(proofs, part)
	}
	return proofs
}

// environmentProven lists the requirements whose proofs an environment can fail, which are proven
// in containers, in pods and over SSH too. The others concern the loop, the profiles and the wire
// formats.
var environmentProven = []string{
	"9.1.6", "9.2.1", "9.4.1", "9.4.3", "9.4.4", "9.4.5", "9.5.4", "9.8.4", "9.9.2", "9.9.6", "9.11.5",
	"9.12.1", "9.12.2", "9.12.3", "9.12.4", "9.12.5", "9.12.6", "9.12.7", "9.12.8", "9.12.9",
	"9.12.12", "9.12.14", "9.12.15", "9.13",
}

// proveElsewhere runs the proofs that an environment can fail, in the environment that the name of
// the test selects.
func proveElsewhere(t *testing.T) {
	t.Helper()
	proofs, seen := allProofs(), 0
	for _, r := range readRequirements(t, "requirements.txt") {
		if proof := proofs[r.id]; proof != nil && slices.Contains(environmentProven, r.id) {
			seen++
			t.Run(r.name(), func(t *testing.T) {
				t.Parallel()
				proof(t)
			})
		}
	}
	if seen != len(environmentProven) {
		t.Errorf("%d requirements are proven here, want %d", seen, len(environmentProven))
	}
}

func readRequirements(t *testing.T, name string) []requirement {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	var out []requirement
	for in := bufio.NewScanner(f); in.Scan(); {
		id, text, ok := strings.Cut(in.Text(), " ")
		if !ok {
			t.Fatalf("%s: %q is no requirement", name, in.Text())
		}
		out = append(out, requirement{id, text})
	}
	return out
}

// TestDoD is the definition of done: a sub-test for each requirement, or a line in
// testdata/open.txt with the reason why it has none.
func TestDoD(t *testing.T) {
	open := map[string]string{}
	for _, r := range readRequirements(t, "open.txt") {
		open[r.id] = r.text
	}
	if len(open) > mostOpen {
		t.Errorf("%d requirements are open, at most %d may be", len(open),
			mostOpen)
	}
	proofs := allProofs()
	known := map[string]bool{}
	for _, r := range readRequirements(t, "requirements.txt") {
		known[r.id] = true
		proof := proofs[r.id]
		switch {
		case proof == nil && open[r.id] == "":
			t.Errorf("%s has no proof and is not listed as open: %s", r.id, r.text)
		case proof != nil && open[r.id] != "":
			t.Errorf("%s has a proof and is listed as open; remove it from the list", r.id)
		case proof != nil:
			t.Run(r.name(), func(t *testing.T) {
				t.Parallel()
				proof(t)
			})
		}
	}
	for id := range proofs {
		if !known[id] {
			t.Errorf("a proof is for %s, which is not a requirement", id)
		}
	}
	for id := range open {
		if !known[id] {
			t.Errorf("open.txt lists %s, which is not a requirement", id)
		}
	}
}

// TestConformancePage compares the table of docs/conformance.md with the requirements and proofs.
func TestConformancePage(t *testing.T) {
	open, proofs := map[string]string{}, allProofs()
	for _, r := range readRequirements(t, "open.txt") {
		open[r.id] = r.text
	}
	var table strings.Builder
	table.WriteString("| line | requirement | proof on this machine | proof in containers | " +
		"proof in pods | proof over SSH |\n|---|---|---|---|---|---|\n")
	for _, r := range readRequirements(t, "requirements.txt") {
		in := func(test string) string { return "`" + test + "/" + r.id + "_`" }
		local, docker := in("TestDoD"), in("TestDoDOnDocker")
		pod, ssh := in("TestDoDOnK8s"), in("TestDoDOnSSH")
		if proofs[r.id] == nil {
			local, docker, pod, ssh = "open: "+open[r.id], "open", "open", "open"
		} else if !slices.Contains(environmentProven, r.id) {
			docker, pod, ssh = "–", "–", "–"
		} else if why := differences[r.id]; why != "" {
			docker += ", " + why
			pod += ", as in containers"
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s | %s |\n", r.id, r.text, local, docker, pod, ssh)
	}
	name := filepath.Join("..", "docs", "conformance.md")
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	prose, rest, _ := strings.Cut(string(page), "| line |")
	got, after, _ := strings.Cut(rest, "\n\n")
	if *update {
		page := []byte(prose + table.String() + "\n" + after)
		if err := os.WriteFile(name, page, 0o644); err != nil { //nolint:gosec // a public page
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(table.String(), "| line |"+got+"\n"); diff != "" {
		t.Errorf("docs/conformance.md is out of date; run go test ./integration -run Conformance "+
			"-update (-want +got):\n%s", diff)
	}
}

// TestPagesNameExistingTests checks that the tests and benchmarks in the documentation exist.
func TestPagesNameExistingTests(t *testing.T) {
	exists := map[string]bool{}
	sources(t, func(_ string, _ []byte, file *ast.File, _ *token.FileSet) {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				exists[f.Name.Name] = true
			}
		}
	})
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(pages, "../CONTRIBUTING.md", "../README.md", "../Makefile") {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile(`\b(Test|Benchmark)[A-Z]\w+`).FindAllString(string(page),
			-1) {
			if !exists[found] {
				t.Errorf("%s names %s, which does not exist", name, found)
			}
		}
	}
}
