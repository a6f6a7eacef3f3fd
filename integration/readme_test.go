package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadmeShowsExamples checks that the Go code of the README is code of the examples, which are
// compiled and run.
func TestReadmeShowsExamples(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var examples []string
	for _, name := range []string{"../runtime/agent/example_test.go", "../env/example_test.go"} {
		data, err := os.ReadFile(filepath.FromSlash(name))
		if err != nil {
			t.Fatal(err)
		}
		// The indentation of a piece of a function is that of the README's margin.
		for _, indent := range []string{"\n", "\n\t", "\n\t\t\t"} {
			examples = append(examples, strings.ReplaceAll("\n"+string(data), indent, "\n"))
		}
	}
	blocks := strings.Split(string(readme), "\n```go\n")[1:]
	if len(blocks) < 6 {
		t.Errorf("the README has %d pieces of Go; it shows a task, a tool, an environment, steering, a server and a script", len(blocks))
	}
next:
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "\n```")
		for _, example := range examples {
			if strings.Contains(example, "\n"+code+"\n") {
				continue next
			}
		}
		t.Errorf("this code of the README is in no example:\n%s", code)
	}
}
