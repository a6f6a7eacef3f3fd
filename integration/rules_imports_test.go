package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sandboxagent/sandboxagent"

// goPackage is a package as go list prints it.
type goPackage struct {
	ImportPath    string
	Imports, Deps []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps",
		module+"/...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var pkgs []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// arrows maps each package of this module, except the backends, to the packages of it that it may
// import. A path that ends in /... stands for the path and all packages below it. Of several lines
// that match a package the longest counts. A package without a line fails the test: decide which
// packages may import it.
var arrows = map[string]string{
	"internal/...": "",
	"policy/...":   "env/vars internal/... policy/internal/...",
	"images":       "",

	"env":          "",
	"env/vars":     "internal/...",
	"env/search":   "env env/internal/... env/search/internal/...",
	"env/transfer": "env env/internal/...",
	"env/snapshot": "env env/internal/... env/search",
	"env/wrap":     "env env/search env/vars",
	"env/verify":   "env internal/...",
	"env/envtest":  "env env/search",
	"env/workspace": "env env/internal/... env/search env/snapshot env/transfer env/vars " +
		"internal/...",
	"env/search/internal/...": "",

	"env/internal/...": "env env/internal/... env/search env/vars",
	"env/internal/wire/server/...": "env env/internal/... env/search env/snapshot " +
		"env/transfer",
	"env/sandboxd": "env env/internal/... env/local env/remote env/vars env/verify",
	"env/remote":   "env env/internal/... env/search env/vars internal/...",

	"env/k8s/jobs": "env/k8s internal/...",

	"runtime/llm":              "",
	"runtime/llm/openai":       providerMay,
	"runtime/llm/anthropic":    providerMay,
	"runtime/llm/gemini":       providerMay,
	"runtime/llm/replay":       "runtime/llm",
	"runtime/llm/llmtest":      "internal/... runtime/llm runtime/llm/replay",
	"runtime/llm/internal/...": "runtime/llm runtime/llm/llmtest",
	"runtime/plan":             "internal/shorten",
	"runtime/event":            "env runtime/llm runtime/plan",
	"runtime/session": "internal/dirlock internal/durable runtime/event runtime/llm runtime/plan " +
		"runtime/tool",
	"runtime/tool/...": "env env/search internal/... policy policy/redact runtime/event runtime/llm " +
		"runtime/plan runtime/tool/...",
	"runtime/failure": "env internal/... policy runtime/event runtime/llm runtime/tool",
	"runtime/profile": "internal/lazyregexp runtime/llm runtime/tool",
	"runtime/agent": "env env/search env/wrap internal/... policy policy/redact runtime/event " +
		"runtime/failure runtime/llm runtime/plan runtime/profile runtime/session runtime/tool",
	"runtime/batch": "internal/... runtime/agent runtime/event runtime/llm runtime/tool",
	"runtime/recording": "env internal/lazyregexp policy runtime/agent runtime/event " +
		"runtime/failure runtime/llm runtime/profile runtime/session runtime/tool",

	"cmd/sandboxd":     "env/sandboxd",
	"cmd/sandboxagent": "...",
	"examples/...":     "...",
	"integration/...":  "images integration/daemons",
}

const (
	// None imports another one.
	backendMay  = "env env/internal/... env/remote env/search env/vars env/verify images internal/..."
	providerMay = "runtime/llm runtime/llm/internal/..."
)

// sdks maps the start of an SDK's import paths to the only packages of this module that may
// import it.
var sdks = map[string]string{
	"github.com/docker/docker/":              "env/docker",
	"github.com/docker/cli/":                 "env/docker",
	"k8s.io/":                                "env/k8s",
	"golang.org/x/crypto/ssh":                "env/ssh",
	"github.com/pkg/sftp":                    "env/ssh",
	"github.com/sashabaranov/go-openai":      "runtime/llm/openai",
	"github.com/modelcontextprotocol/":       "runtime/tool/mcp",
	"github.com/google/go-containerregistry": "integration/daemons",
}

// covers reports whether a pattern, such as env/internal/..., stands for a package.
func covers(pattern, name string) bool {
	below, ok := strings.CutSuffix(pattern, "...")
	return name == pattern || ok && strings.HasPrefix(name+"/", below)
}

// isBackend reports whether a package of this module is a backend: env/NAME without a line in
// arrows that imports env/remote.
func isBackend(p goPackage) bool {
	name, ours := strings.CutPrefix(p.ImportPath, module+"/")
	return ours && arrows[name] == "" && path.Dir(name) == "env" &&
		slices.Contains(p.Imports, module+"/env/remote")
}

// mayImport returns the patterns of the packages that a package may import.
func mayImport(p goPackage) (patterns []string, ok bool) {
	if isBackend(p) {
		return strings.Fields(backendMay), true
	}
	name, longest := strings.TrimPrefix(p.ImportPath, module+"/"), ""
	for pattern := range arrows {
		if covers(pattern, name) && len(pattern) > len(longest) {
			longest = pattern
		}
	}
	return strings.Fields(arrows[longest]), longest != ""
}

func TestImportsFollowArrows(t *testing.T) {
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		patterns, ok := mayImport(p)
		if !ok {
			t.Errorf("%s has no line in arrows", name)
		}
		for _, imp := range p.Imports {
			dep, ours := strings.CutPrefix(imp, module+"/")
			allowed := func(pattern string) bool { return covers(pattern, dep) }
			if ours && !slices.ContainsFunc(patterns, allowed) {
				t.Errorf("%s imports %s; it may import %v", name, dep, patterns)
			}
			if name == "env" && strings.Contains(imp, ".") {
				t.Errorf("env imports %s; the contract imports the standard library only", imp)
			}
			if hostFree.MatchString(name) && slices.Contains(hostPackages, imp) {
				t.Errorf("%s imports %s; it acts on an environment, never on the host", name, imp)
			}
		}
	}
}

// TestBackendsAreComplete checks that each backend has the parts that CONTRIBUTING.md lists.
func TestBackendsAreComplete(t *testing.T) {
	var names []string
	for _, p := range listPackages(t) {
		if isBackend(p) {
			names = append(names, path.Base(p.ImportPath))
		}
	}
	if len(names) < 3 {
		t.Fatalf("found only the backends %v", names)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		for pattern, text := range map[string]string{
			"*.go":      "_ env.Environment = (*",
			"*_test.go": "envtest.Run(",
			"../../cmd/sandboxagent/backend_" + name + ".go": `return "` + name + `"`,
		} {
			if !anyContains(t, filepath.Join("..", "env", name, pattern), text) {
				t.Errorf("env/%s: no file %s has %s", name, pattern, text)
			}
		}
		if !strings.Contains(string(readme), "--env="+name) {
			t.Errorf("the README does not name --env=%s", name)
		}
	}
}

// anyContains reports whether a file whose name matches a pattern has a text.
func anyContains(t *testing.T, pattern, text string) bool {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(names, func(name string) bool {
		data, err := os.ReadFile(name)
		return err == nil && strings.Contains(string(data), text)
	})
}

// hostFree matches the packages that reach files and commands through an environment only.
var hostFree = regexp.MustCompile(`^runtime/(tool|profile)(/|$)`)

var hostPackages = []string{"os", "os/exec", "path/filepath"}

// TestSDKsStayInTheirPackages checks all dependencies, so that an SDK reaches a package only
// through the package that may import it.
func TestSDKsStayInTheirPackages(t *testing.T) {
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, dep := range p.Deps {
			for sdk, owner := range sdks {
				if strings.HasPrefix(dep, sdk) && name != owner &&
					!slices.Contains(p.Deps, module+"/"+owner) {
					t.Errorf("%s depends on %s, which only %s may import", name, dep, owner)
				}
			}
		}
	}
}
