package dirlock_test

import (
	"errors"
	"testing"

	"github.com/sandboxagent/sandboxagent/internal/dirlock"
)

func TestLock(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		if dirlock.Held(dir) {
			t.Error("it is held before Acquire")
		}
		l, err := dirlock.Acquire(dir)
		if err != nil {
			t.Fatal(err)
		}
		if !dirlock.Held(dir) {
			t.Error("it is not held")
		}
		if _, err := dirlock.Acquire(dir); !errors.Is(err, dirlock.ErrHeld) {
			t.Errorf("a second Acquire: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := dirlock.Acquire(dir + "/missing"); err == nil || errors.Is(err, dirlock.ErrHeld) {
		t.Errorf("a missing directory: %v", err)
	}
}
