package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/batch"
)

// TestFitWork has results that are too large for the cluster: without the journal they are stored,
// and a task whose patch alone is too large has failed.
func TestFitWork(t *testing.T) {
	const large, small = maxWorkResult + maxWorkResult/8, 1000
	for name, tt := range map[string]struct {
		journal, patch         int
		lostJournal, lostPatch bool
	}{
		"small":   {small, small, false, false},
		"journal": {large, small, true, false},
		"patch":   {large, large, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write := func(name string, size int) string {
				name = filepath.Join(dir, name)
				data := make([]byte, size)
				_, _ = rand.NewChaCha8([32]byte{}).Read(data) // never fails
				err := os.MkdirAll(filepath.Dir(name), 0o700)
				if err == nil {
					err = os.WriteFile(name, data, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				return name
			}
			r := &batch.Record{TaskID: "a", Attempt: 1}
			r.Status = "completed"
			r.Journal = write(attemptSessions+"/s/journal.jsonl", tt.journal)
			r.SessionDir, r.Patch = filepath.Dir(r.Journal), write(attemptPatch, tt.patch)
			write(attemptLog, small)
			data, err := fitWork(t.Context(), dir, r)
			if err != nil || len(data) > maxWorkResult {
				t.Errorf("%d bytes, %v", len(data), err)
			}
			log, err := os.ReadFile(filepath.Join(dir, attemptLog))
			if err != nil {
				t.Error(err)
			}
			noted := strings.Contains(string(log), "the journal is left out")
			if noted != tt.lostJournal || (r.Journal == "") != tt.lostJournal ||
				(r.SessionDir == "") != tt.lostJournal {
				t.Errorf("the journal is %q in %q, noted %v", r.Journal, r.SessionDir, noted)
			}
			if (r.Patch == "") != tt.lostPatch || r.Passed() == tt.lostPatch ||
				strings.Contains(r.Error, "the patch is lost") != tt.lostPatch {
				t.Errorf("the patch is %q: %s, %s", r.Patch, r.Status, r.Error)
			}
		})
	}
}
