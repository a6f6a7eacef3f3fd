package integration_test

import (
	"bufio"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/conformance.md anew")

// mostOpen is how many requirements may be open. It only ever gets smaller.
const mostOpen = 0

// requirement is a line of testdata/requirements.txt or testdata/open.txt: an ID and a sentence.
type requirement struct{ id, text string }

// name is that of the requirement's sub-test.
func (r requirement) name() string {
	return r.id + "_" + strings.ReplaceAll(strings.TrimSuffix(r.text, "."), " ", "_")
}

// allProofs are the proofs of all parts, by the ID of what they prove.
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

// environmentProven are the requirements whose proofs an environment can fail. They are proven
// again in containers and over SSH; the others concern the loop, the profiles and the wire formats,
// and are the same everywhere.
var environmentProven = []string{
	"9.1.6", "9.2.1", "9.4.1", "9.4.2", "9.4.3", "9.4.4", "9.4.5", "9.4.6", "9.5.4", "9.8.3", "9.8.4",
	"9.9.2", "9.9.6", "9.11.5",
	"9.12.1", "9.12.2", "9.12.3", "9.12.4", "9.12.5", "9.12.6", "9.12.7", "9.12.8", "9.12.9",
	"9.12.14", "9.12.15", "9.13",
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
// testdata/open.txt that says why there is none.
func TestDoD(t *testing.T) {
	open := map[string]string{}
	for _, r := range readRequirements(t, "open.txt") {
		open[r.id] = r.text
	}
	if len(open) > mostOpen {
		t.Errorf("%d requirements are open; there were %d, and the list only shrinks", len(open),
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
			t.Errorf("there is a proof of %s, which is no requirement", id)
		}
	}
	for id := range open {
		if !known[id] {
			t.Errorf("%s is listed as open, and is no requirement", id)
		}
	}
}

// TestConformancePage makes the page of the proofs that there are, and compares it with the one in
// docs.
func TestConformancePage(t *testing.T) {
	open := map[string]string{}
	for _, r := range readRequirements(t, "open.txt") {
		open[r.id] = r.text
	}
	proofs := allProofs()
	var b strings.Builder
	b.WriteString("# Conformance\n\n" +
		"What a coding agent must do to be called done, line by line, and the test that proves it. " +
		"The tests run the agent against\n" +
		"servers that speak the providers' own interfaces over HTTP and are as strict as the real " +
		"ones.\n\n" +
		"- `go test ./integration -run 'TestDoD/9.1.4_'` runs the proof of 9.1.4 with tools that act " +
		"on this machine.\n" +
		"- `TestDoDOnDocker` repeats the proofs that an environment can fail with all sessions in " +
		"containers, and `TestDoDOnSSH` on a\n" +
		"  host over SSH; a line notes where one proves less there. A dash marks what does not depend " +
		"on the environment.\n" +
		"- The lines of 9.9, 9.12 and 9.13, and others that are about every profile, have a sub-test " +
		"for each of the providers openai,\n" +
		"  anthropic and gemini: `-run 'TestDoD/9.12.4_/anthropic'`. With `-short`, containers and " +
		"SSH see the first of them only.\n" +
		"- `TestSmokeReal` does the tasks of 9.13 with the real services of which the environment has " +
		"a key (`OPENAI_API_KEY`,\n" +
		"  `ANTHROPIC_API_KEY`, `GEMINI_API_KEY` or `GOOGLE_API_KEY`), and is skipped for the " +
		"others.\n\n" +
		"| line | requirement | proof on this machine | proof in containers | proof over SSH " +
		"|\n|---|---|---|---|---|\n")
	for _, r := range readRequirements(t, "requirements.txt") {
		here, docker, host := "`TestDoD/"+r.id+"_`", "`TestDoDOnDocker/"+r.id+"_`",
			"`TestDoDOnSSH/"+r.id+"_`"
		if proofs[r.id] == nil {
			here, docker, host = "open: "+open[r.id], "open", "open"
		} else if !slices.Contains(environmentProven, r.id) {
			docker, host = "–", "–"
		} else if why := differences[r.id]; why != "" {
			docker += ", " + why
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.id, r.text, here, docker, host)
	}
	name := filepath.Join("..", "docs", "conformance.md")
	if *update {
		if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil { //nolint:gosec // a page of the documentation
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b.String(), string(got)); diff != "" {
		t.Errorf("docs/conformance.md is out of date; run go test ./integration -run Conformance "+
			"-update (-want +got):\n%s", diff)
	}
}
