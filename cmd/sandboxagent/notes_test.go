package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNoteOnce checks when a note is written: the first time, when its text has changed, and after
// its cause was gone; always where the state directory cannot be written.
func TestNoteOnce(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, []byte("null"), 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := filepath.Join(root, "damaged")
	if err := os.MkdirAll(damaged, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(damaged, notesFile), []byte("null"), 0o600); err != nil {
		t.Fatal(err)
	}
	for state, want := range map[string]string{
		filepath.Join(root, "state"): "weak weaker weak2 weak weak",
		damaged:                      "weak weaker weak2 weak weak",
		filepath.Join(file, "state"): "weak weak weaker weak2 weak weak",
	} {
		t.Setenv("SANDBOXAGENT_STATE_DIR", state)
		var stderr bytes.Buffer
		p := &program{std: newStreams(nil, nil, &stderr)}
		for _, n := range [][2]string{
			{"a", "weak"},
			{"a", "weak"},
			{"a", "weaker"},
			{"b", "weak2"},
			{"a", "weak"},
			{"a", ""},
			{"a", ""},
			{"a", "weak"},
		} {
			p.noteOnce(n[0], n[1])
		}
		got := strings.ReplaceAll(strings.TrimSpace(stderr.String()), "sandboxagent: note: ", "")
		if got = strings.Join(strings.Fields(got), " "); got != want {
			t.Errorf("with the state directory %s: %q, want %q", state, got, want)
		}
	}
}
