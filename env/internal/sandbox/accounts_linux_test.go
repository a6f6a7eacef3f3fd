package sandbox

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// TestOtherAccounts has root start a sandbox beside directories of another account that root cannot
// enter without the capabilities that it lacks in a sandbox.
func TestOtherAccounts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	need(t, Bubblewrap)
	for name, closed := range map[string]string{
		"its state directory": ".local/state/sandboxagent",
		"a parent":            ".local",
		"its home":            ".",
	} {
		t.Run(name, func(t *testing.T) {
			// Not in parallel: the sockets of one case are hidden in the others.
			w := newWorld(t)
			other := filepath.Join(w.root, "other")
			for _, dir := range []string{".local/state/sandboxagent/sessions", ".ssh"} {
				if err := os.MkdirAll(filepath.Join(other, dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			w.write(t, "other/.ssh/id")
			theirs := filepath.Join(w.root, "theirs")
			if err := os.Mkdir(theirs, 0o755); err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("unix", filepath.Join(theirs, "socket"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			// One path of secrets is below a closed directory, one beside it.
			w.policy.Hide = []string{filepath.Join(other, ".local/state/sandboxagent/sessions")}
			if err := os.Chown(other, nobody, nobody); err != nil {
				t.Fatal(err)
			}
			closed := filepath.Join(other, closed)
			for _, dir := range []string{closed, theirs} {
				if err := errors.Join(os.Chown(dir, nobody, nobody), os.Chmod(dir, 0o700)); err != nil {
					t.Fatal(err)
				}
			}
			p, err := New(w.policy, Bubblewrap, []string{w.home, other}, os.Getenv)
			if err != nil {
				t.Fatal(err)
			}
			defer p.unlock()
			hidden := `for n in "` + other + `"/.local/state/sandboxagent/sessions "` + other +
				`"/.ssh/id; do ! ls "$n" 2>/dev/null | grep -q . || exit 1; done`
			out, code := w.start(t, p, hidden+`; ! cat "`+other+`/.ssh/id"; ls "$WORK"`)
			if code != 0 {
				t.Errorf("exit code %d, %s", code, out)
			}
			if err := os.RemoveAll(theirs); err != nil {
				t.Fatal(err)
			}
			if !p.Outdated() {
				t.Error("the plan is not outdated although a path to hide has been removed")
			}
		})
	}
}
