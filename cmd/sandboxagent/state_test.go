package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestStateDir(t *testing.T) {
	root := t.TempDir()
	tests := []struct {
		name, state, xdg, home string
		want                   string
	}{
		{"own variable", filepath.Join(root, "own"), filepath.Join(root, "xdg"), root, filepath.Join(root,
			"own")},
		{"XDG", "", filepath.Join(root, "xdg"), root, filepath.Join(root, "xdg", "sandboxagent")},
		{"relative XDG is ignored", "", "xdg", root, filepath.Join(root, ".local", "state",
			"sandboxagent")},
		{"home", "", "", root, filepath.Join(root, ".local", "state", "sandboxagent")},
		{"nothing", "", "", "", ""},
		{"relative home", "", "", "here", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.state == "" && (runtime.GOOS == "windows" || runtime.GOOS == "darwin") {
				t.Skip("this system has its own directories")
			}
			t.Setenv("SANDBOXAGENT_STATE_DIR", tt.state)
			t.Setenv("XDG_STATE_HOME", tt.xdg)
			t.Setenv("HOME", tt.home)
			t.Setenv("TMPDIR", root)
			got, err := stateDir()
			if err != nil || got != tt.want {
				t.Errorf("got %q, want %q: %v", got, tt.want, err)
			}
			if made, err := os.ReadDir(root); err != nil || len(made) > 0 {
				t.Errorf("something was made: %v %v", made, err)
			}
		})
	}
}

// TestOpenState checks that the state directory is created, or a temporary one without a home
// directory.
func TestOpenState(t *testing.T) {
	root := t.TempDir()
	t.Setenv("TMPDIR", root)
	t.Setenv("TMP", root)
	var stderr bytes.Buffer
	p := &program{std: newStreams(nil, nil, &stderr)}
	for _, want := range []string{filepath.Join(root, "a", "b"), ""} {
		got, err := p.openState(want)
		if err != nil || want != "" && got != want || filepath.Dir(got) != root && want == "" {
			t.Errorf("%q became %q: %v", want, got, err)
		}
		if _, err := os.Stat(filepath.Join(got, "sessions")); err != nil {
			t.Error(err)
		}
		if warned := strings.Contains(stderr.String(), "no home directory"); warned != (want == "") {
			t.Errorf("stderr: %q", stderr.String())
		}
	}
}
