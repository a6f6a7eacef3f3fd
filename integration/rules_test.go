package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
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

// goPackage is what go list tells of a package.
type goPackage struct {
	ImportPath   string
	Imports      []string
	Deps         []string
	TestImports  []string
	XTestImports []string
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list",
		"-json=ImportPath,Imports,Deps,TestImports,XTestImports", module+"/...")
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

// backends are the packages below env that know one kind of place; sdks are what only they and the
// providers may use.
var (
	backends  = regexp.MustCompile(`^` + module + `/env/(local|docker|k8s|ssh)(/|$)`)
	providers = regexp.MustCompile(`^` + module + `/runtime/llm/(openai|anthropic|gemini)(/|$)`)
	sdks      = regexp.MustCompile(`^(github\.com/docker/|k8s\.io/|golang\.org/x/crypto/ssh|github\.com/pkg/sftp|` +
		`github\.com/sashabaranov/go-openai|github\.com/anthropics/|google\.golang\.org/genai)`)
	core = regexp.MustCompile(`^` + module + `/(env|env/(envtest|internal/.*|remote|search|snapshot|transfer|vars|wrap|workspace|verify)|policy|` +
		`runtime/(agent|session|tool|profile|event|llm))$`)
)

func TestImportDirections(t *testing.T) {
	seen := 0
	for _, p := range listPackages(t) {
		isCore := core.MatchString(p.ImportPath)
		for _, dep := range p.Deps {
			switch {
			case isCore && backends.MatchString(dep):
				t.Errorf("%s depends on the backend %s; only cmd knows backends", p.ImportPath, dep)
			case isCore && providers.MatchString(dep):
				t.Errorf("%s depends on the provider %s; only cmd knows providers", p.ImportPath, dep)
			case isCore && sdks.MatchString(dep):
				t.Errorf("%s depends on %s; an SDK stays in the package that wraps it", p.ImportPath, dep)
			case backends.MatchString(p.ImportPath) && backends.MatchString(dep) && !samePlace(p.ImportPath,
				dep):
				t.Errorf("the backend %s depends on the backend %s", p.ImportPath, dep)
			case strings.HasPrefix(p.ImportPath, module+"/env") && strings.HasPrefix(dep, module+"/runtime"):
				t.Errorf("%s depends on %s; environments know nothing of agents", p.ImportPath, dep)
			case !strings.HasPrefix(p.ImportPath, module+"/cmd") && strings.HasPrefix(dep, module+"/cmd"):
				t.Errorf("%s depends on the command %s", p.ImportPath, dep)
			}
		}
		if isCore {
			seen++
		}
		if onEnvironment.MatchString(p.ImportPath) {
			for _, imp := range p.Imports {
				if imp == "os" || imp == "os/exec" || imp == "path/filepath" {
					t.Errorf("%s imports %s; it acts on an environment, never on the host", p.ImportPath, imp)
				}
			}
		}
	}
	if seen < 8 {
		t.Fatalf("only %d core packages were looked at", seen)
	}
}

// arrows are the packages of the project that those around the contract may import, by the path
// below env; internal ones are free.
var arrows = map[string][]string{
	"env":          nil,
	"env/remote":   {"env", "env/search", "env/vars"},
	"env/vars":     nil,
	"env/search":   {"env"},
	"env/transfer": {"env"},
	"env/snapshot": {"env", "env/search"},
	"env/wrap":     {"env", "env/search", "env/vars"},
}

func TestImportsAroundTheContract(t *testing.T) {
	seen := 0
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		allowed, ok := arrows[name]
		if !ok {
			continue
		}
		seen++
		for _, imp := range p.Imports {
			dep, own := strings.CutPrefix(imp, module+"/")
			switch {
			case name == "env" && strings.Contains(imp, "."):
				t.Errorf("env imports %s; the contract imports the standard library only", imp)
			case own && !strings.Contains("/"+dep, "/internal/") && !slices.Contains(allowed, dep):
				t.Errorf("%s imports %s; it may import %v", name, dep, allowed)
			}
		}
	}
	if seen != len(arrows) {
		t.Errorf("%d packages were checked, want %d", seen, len(arrows))
	}
}

// onEnvironment are the packages that reach files and commands through an environment only.
var onEnvironment = regexp.MustCompile(`^` + module + `/runtime/(tool|profile)(/|$)`)

func samePlace(a, b string) bool {
	return backends.FindStringSubmatch(a)[1] == backends.FindStringSubmatch(b)[1]
}

// sources calls fn for every Go file of the repository.
func sources(t *testing.T, fn func(name string, src []byte, file *ast.File, set *token.FileSet)) {
	t.Helper()
	n := 0
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && name != "..") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, src, parser.ParseComments)
		if err != nil {
			return err
		}
		n++
		fn(filepath.ToSlash(name), src, file, set)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 50 {
		t.Fatalf("only %d files were looked at", n)
	}
}

func TestFilesAndFunctionsAreShort(t *testing.T) {
	const fileLimit, functionLimit = 800, 80
	sources(t, func(name string, src []byte, file *ast.File, set *token.FileSet) {
		if n := bytes.Count(src, []byte("\n")); n > fileLimit {
			t.Errorf("%s has %d lines, more than %d", name, n, fileLimit)
		}
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				if n := set.Position(f.End()).Line - set.Position(f.Pos()).Line + 1; n > functionLimit {
					t.Errorf("%s: %s has %d lines, more than %d", name, f.Name.Name, n, functionLimit)
				}
			}
		}
	})
}

func TestEveryPackageHasOneComment(t *testing.T) {
	docs := map[string][]string{}
	sources(t, func(name string, _ []byte, file *ast.File, _ *token.FileSet) {
		dir := path.Dir(name)
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		if docs[dir] == nil {
			docs[dir] = []string{}
		}
		if file.Doc != nil {
			docs[dir] = append(docs[dir], name)
		}
	})
	for dir, files := range docs {
		if len(files) != 1 {
			t.Errorf("%s has %d package comments, want one: %v", dir, len(files), files)
		}
	}
}

func TestNothingHappensByImport(t *testing.T) {
	sources(t, func(name string, _ []byte, file *ast.File, _ *token.FileSet) {
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s has an init function", name)
			}
		}
	})
}

func TestPackageNamesSaySomething(t *testing.T) {
	empty := []string{
		"util", "utils", "common", "helper", "helpers", "misc", "types", "manager",
		"service", "base", "runtime",
	}
	sources(t, func(name string, _ []byte, file *ast.File, _ *token.FileSet) {
		if path.Dir(name) == "../env/internal/helper" {
			return // it holds the helper, a program
		}
		if slices.Contains(empty, strings.TrimSuffix(file.Name.Name, "_test")) {
			t.Errorf("%s is in a package named %s", name, file.Name.Name)
		}
	})
}

func TestEverySkipHasAReason(t *testing.T) {
	sources(t, func(name string, _ []byte, file *ast.File, set *token.FileSet) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
				if sel.Sel.Name == "SkipNow" || sel.Sel.Name == "Skip" && len(call.Args) == 0 {
					t.Errorf("%s skips without a reason", set.Position(call.Pos()))
				}
			}
			return true
		})
	})
}

func TestNothingIsUnfinished(t *testing.T) {
	words := regexp.MustCompile(`(?i)//.*\b(TODO|FIXME|XXX|HACK|for now|not implemented|placeholder)\b`)
	sources(t, func(name string, src []byte, _ *ast.File, _ *token.FileSet) {
		for _, m := range words.FindAll(src, -1) {
			if !strings.HasSuffix(name, "integration/rules_test.go") {
				t.Errorf("%s says of itself that it is unfinished: %s", name, m)
			}
		}
	})
}
