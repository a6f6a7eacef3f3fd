package main

import (
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
		{"own variable", filepath.Join(root, "own"), filepath.Join(root, "xdg"), root, filepath.Join(root, "own")},
		{"XDG", "", filepath.Join(root, "xdg"), root, filepath.Join(root, "xdg", "sandboxagent")},
		{"relative XDG is ignored", "", "xdg", root, filepath.Join(root, ".local", "state", "sandboxagent")},
		{"home", "", "", root, filepath.Join(root, ".local", "state", "sandboxagent")},
		{"nothing", "", "", "", ""},
		{"relative home", "", "", "here", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.state == "" && (runtime.GOOS == "windows" || runtime.GOOS == "darwin") {
				t.Skip("this system has a place of its own")
			}
			t.Setenv("SANDBOXAGENT_STATE_DIR", tt.state)
			t.Setenv("XDG_STATE_HOME", tt.xdg)
			t.Setenv("HOME", tt.home)
			t.Setenv("TMPDIR", root)
			got, temporary, err := stateDir()
			if err != nil {
				t.Fatal(err)
			}
			if temporary {
				defer os.RemoveAll(got) //nolint:errcheck // the test's folder goes anyway
			}
			if temporary != (tt.want == "") {
				t.Errorf("temporary: %v", temporary)
			}
			if !temporary && got != tt.want || temporary && !strings.HasPrefix(got, root) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
