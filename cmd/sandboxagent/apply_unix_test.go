//go:build unix

package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/snapshot"
	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// TestSecondSignalWaitsForApply checks that a second signal does not end the program while it
// changes files on the host.
func TestSecondSignalWaitsForApply(t *testing.T) {
	p := &program{std: newStreams(nil, nil, io.Discard)}
	killed := make(chan struct{})
	kill := func() { close(killed) }
	p.kill.Store(&kill)
	applied := false
	code := p.interruptible(t.Context(), func(ctx context.Context) int {
		p.applying.Lock()
		for _, wait := range []<-chan struct{}{ctx.Done(), killed} {
			if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			<-wait
		}
		time.Sleep(200 * time.Millisecond) // a program that does not wait ends now
		applied = true
		p.applying.Unlock()
		return codeDone
	})
	if !applied || code != codeTerminated && code != codeDone {
		t.Errorf("applied %v, code %d", applied, code)
	}
}

func TestAwaitApplyIsBounded(t *testing.T) {
	p := &program{}
	p.applying.Lock()
	p.awaitApply(time.Millisecond)
	p.applying.Unlock()
}

// lookLocker calls look when it is locked.
type lookLocker struct{ look func() }

func (l lookLocker) Lock() { l.look() }
func (lookLocker) Unlock() {}

// TestApplyKeepsPatch checks that the patch is stored while the changes are made, and stays only if
// that fails.
func TestApplyKeepsPatch(t *testing.T) {
	tests := []struct {
		name string
		// meanwhile runs on the host just before the changes are made.
		meanwhile string
		named     bool
		done      bool
		content   string
		left      int
	}{
		{name: "applied", done: true, content: "new\n"},
		{name: "conflict", meanwhile: "other\n", done: true, content: "other\n", left: 1},
		{name: "failed", content: "old\n", left: 1},
		{name: "applied and named", named: true, done: true, content: "new\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			state, host, there := t.TempDir(), t.TempDir(), t.TempDir()
			t.Setenv("SANDBOXAGENT_STATE_DIR", state)
			file := filepath.Join(host, "a")
			writeText(t, file, "old\n")
			tree, err := workspace.Open(t.Context(), host, workspace.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer tree.Close() //nolint:errcheck // it is only read
			e, err := local.New(local.Config{Dir: there})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close() //nolint:errcheck // nothing runs in it
			if err := tree.Upload(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			writeText(t, filepath.Join(there, "a"), "new\n")

			kept := func() []string {
				names, err := filepath.Glob(filepath.Join(state, "patches", "*.patch"))
				if err != nil {
					t.Fatal(err)
				}
				return names
			}
			looked := false
			settings := patchSettings{apply: true}
			if tt.named {
				settings.file = filepath.Join(state, "named.patch")
			}
			change, err := startPatch(t.Context(), settings, &environment{
				opened: opened{plain: e}, tree: tree, notify: func(string) {},
				applying: lookLocker{func() {
					looked = true
					if names := kept(); tt.named == (len(names) == 1) {
						t.Errorf("kept: %q", names)
					}
					if tt.meanwhile != "" {
						writeText(t, file, tt.meanwhile)
					}
				}},
			})
			if err != nil {
				t.Fatal(err)
			}
			name, err := change.finish(t.Context(), e, tt.done)
			if (err != nil) != (tt.meanwhile != "") || looked != tt.done {
				t.Errorf("%v; looked: %v", err, looked)
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != tt.content {
				t.Errorf("%q, %v, want %q", got, err, tt.content)
			}
			if names := kept(); len(names) != tt.left {
				t.Errorf("left: %q, want %d", names, tt.left)
			}
			if want := tt.named || tt.left > 0; (name != "") != want {
				t.Errorf("name %q", name)
			}
		})
	}
}

func writeText(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestKeepPatchRemovesHalf checks that a patch that cannot be written leaves no file.
func TestKeepPatchRemovesHalf(t *testing.T) {
	state := t.TempDir()
	t.Setenv("SANDBOXAGENT_STATE_DIR", state)
	_, err := keepPatch(func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")
		return syscall.ENOSPC
	})
	if err == nil || !strings.Contains(err.Error(), "store the patch: ") {
		t.Error(err)
	}
	if left, _ := filepath.Glob(filepath.Join(state, "patches", "*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestDifferenceUnreadable checks that files that were unreadable before are not reported.
func TestDifferenceUnreadable(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything")
	}
	dir := t.TempDir()
	for _, name := range []string{"closed", "open"} {
		writeText(t, filepath.Join(dir, name), name)
	}
	e, err := local.New(local.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close() //nolint:errcheck // nothing runs in it
	var snapshots []*snapshot.Snapshot
	for _, name := range []string{"closed", "open"} {
		if err := os.Chmod(filepath.Join(dir, name), 0); err != nil {
			t.Fatal(err)
		}
		s, err := snapshot.Take(t.Context(), e, "", snapshot.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close() //nolint:errcheck // it is only read
		snapshots = append(snapshots, s)
	}
	d := &difference{before: snapshots[0], after: snapshots[1]}
	if got := strings.Join(d.Unreadable(), " "); got != "open" {
		t.Errorf("%q, want open", got)
	}
}
