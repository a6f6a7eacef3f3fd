package agent

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

// A sub-agent reads no instructions from outside of its session's working directory.
func TestAddDocsOutsideOfTheProject(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symlinks need a privilege on Windows")
	}
	root := t.TempDir()
	for name, content := range map[string]string{
		"dir/a/AGENTS.md": "good", "dir/b/x": "", "outside/AGENTS.md": "secret",
	} {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{
		"dir/b/AGENTS.md": "../../outside/AGENTS.md", "dir/c": "../outside", "dir/d": "a",
	} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	e, err := local.New(local.Config{Dir: filepath.Join(root, "dir")})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close() //nolint:errcheck // it only read
	s := profile.Surroundings{WorkDir: e.Info().WorkDir}
	for name, good := range map[string]bool{"a": true, "b": false, "c": false, "d": true} {
		docs, skipped := addDocs(t.Context(), e, s, []string{"AGENTS.md"}, s.WorkDir+"/"+name)
		switch {
		case good && (len(docs) != 1 || docs[0].Text != "good" || len(skipped) > 0):
			t.Errorf("%s: read %v, skipped %q", name, docs, skipped)
		case !good && (len(docs) > 0 || len(skipped) != 1 ||
			!strings.Contains(skipped[0], name+"/AGENTS.md is not read as instructions")):
			t.Errorf("%s: read %v, skipped %q", name, docs, skipped)
		}
	}
}
