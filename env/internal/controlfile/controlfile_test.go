package controlfile

import (
	"io/fs"
	"testing"
)

func TestAll(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range All {
		if !fs.ValidPath(f.Name) || f.Source == "" || seen[f.Name] {
			t.Errorf("%+v", f)
		}
		seen[f.Name] = true
	}
}

func TestOf(t *testing.T) {
	for name, want := range map[string]bool{
		".vscode": true, ".vscode/tasks.json": true, "web/.vscode/tasks.json": true,
		".github/workflows/ci.yml": true, ".github/CODEOWNERS": false, "a.vscode": false,
		"Jenkinsfile": true, "src/main.go": false, ".hg/hgrc": true, "": false,
		".git": true, ".git/hooks/x": true, ".gitignore": false,
	} {
		if Of(name) != want {
			t.Errorf("%q: %t, want %t", name, !want, want)
		}
	}
}
