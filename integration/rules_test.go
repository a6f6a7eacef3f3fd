package integration_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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
		t.Fatalf("found only %d Go files", n)
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

func TestPackageNamesHaveMeaning(t *testing.T) {
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
	words := regexp.MustCompile(`(?i)//.*\b(TODO|FIXME|XXX|HACK|for now|not implemented|` +
		`placeholder)\b`)
	sources(t, func(name string, src []byte, _ *ast.File, _ *token.FileSet) {
		if strings.HasSuffix(name, "integration/rules_test.go") {
			return
		}
		for _, m := range words.FindAll(src, -1) {
			t.Errorf("%s contains an unfinished part: %s", name, m)
		}
	})
}

// TestLibraryNamesNoFlags finds texts of the library that name a flag of the command line, which
// programs that embed it do not have.
func TestLibraryNamesNoFlags(t *testing.T) {
	own := regexp.MustCompile(`"?Name:\s+"([a-z][a-z-]+)"`)
	flags := map[string]bool{}
	sources(t, func(name string, src []byte, _ *ast.File, _ *token.FileSet) {
		if path.Dir(name) == "../cmd/sandboxagent" {
			for _, m := range own.FindAllSubmatch(src, -1) {
				flags[string(m[1])] = true
			}
		}
	})
	if !flags["image"] || !flags["sandbox"] {
		t.Fatalf("the flags of the command line are %v", slices.Sorted(maps.Keys(flags)))
	}
	// A flag alone is an argument for a program; the commands of git in hints have their own flags.
	argument := regexp.MustCompile(`^\S*$|\b(git [a-z-]+|diff)( --?[a-z][a-z=-]*)+`)
	flag := regexp.MustCompile(`--([a-z][a-z-]+)`)
	sources(t, func(name string, _ []byte, file *ast.File, set *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "../env/sandboxd/") ||
			!strings.HasPrefix(name, "../env/") && !strings.HasPrefix(name, "../runtime/") &&
				!strings.HasPrefix(name, "../internal/") {
			return
		}
		ast.Inspect(file, func(n ast.Node) bool {
			text, ok := n.(*ast.BasicLit)
			if !ok || text.Kind != token.STRING {
				return true
			}
			for _, m := range flag.FindAllStringSubmatch(argument.ReplaceAllString(text.Value, ""), -1) {
				if flags[m[1]] {
					t.Errorf("%s: %s names the flag --%s", set.Position(text.Pos()), text.Value, m[1])
				}
			}
			return true
		})
	})
}

// TestLinkerDropsMethods checks that the program reaches no text/template, with which the linker
// would keep every method of every type: 5 MB, and 2 MB of memory.
func TestLinkerDropsMethods(t *testing.T) {
	program, err := os.ReadFile(command(t))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(program, []byte("text/template.(*state).evalField")) {
		t.Error("it has text/template (go build -ldflags=-dumpdep prints who needs it)")
	}
}
