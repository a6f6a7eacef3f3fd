package integration_test

import (
	"os"
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
	for _, name := range []string{"../runtime/agent/example_test.go", "../env/example_test.go"} {
		data, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		examples += compact(string(data)) + "\n"
	}
	blocks := strings.Split(string(readme), "\n```go\n")[1:]
	if len(blocks) < 6 {
		t.Errorf("the README has %d pieces of Go; it shows a task, a tool, an environment, steering, "+
			"a server and a script", len(blocks))
	}
	for _, block := range blocks {
		if code, _, _ := strings.Cut(block, "\n```"); !strings.Contains(examples, compact(code)) {
			t.Errorf("this code of the README is in no example:\n%s", code)
		}
	}
}
