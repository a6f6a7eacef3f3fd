package integration_test

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadmeShowsExamples checks that the Go code of the README is code of the examples, which are
// compiled and run. Line breaks may differ.
func TestReadmeShowsExamples(t *testing.T) {
	compact := func(code string) string {
		return strings.NewReplacer(",}", "}", ",)", ")").Replace(
			strings.NewReplacer(" ", "", "\t", "", "\n", "", "//", "").Replace(code))
	}
	readme, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var examples string
	names, err := filepath.Glob("../examples/*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if link := strings.TrimPrefix(path.Dir(filepath.ToSlash(name)), "../"); !strings.Contains(
			string(readme), "]("+link+"/") {
			t.Errorf("the README has no link to %s", link)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		examples += compact(string(data)) + "\n"
	}
	blocks := strings.Split(string(readme), "\n```go\n")[1:]
	if len(blocks) == 0 {
		t.Error("the README shows no Go")
	}
	for _, block := range blocks {
		if code, _, _ := strings.Cut(block, "\n```"); !strings.Contains(examples, compact(code)) {
			t.Errorf("this code of the README is in no example:\n%s", code)
		}
	}
}
