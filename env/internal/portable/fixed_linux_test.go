package portable_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/portable"
)

// ordinary is the user that shells run as if this program is root, whom permissions do not bind.
const ordinary = 10001

// TestFixedFolder writes files in a folder in which nothing can be made, so that what is written first goes to the private
// folder of a shell. None of the shells has run a command, and all of them write at once.
func TestFixedFolder(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		base, err := os.MkdirTemp("", "fixed") //nolint:usetesting // Another user cannot get into that of a test.
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.RemoveAll(base); err != nil {
				t.Error(err)
			}
		})
		temp, fixed := filepath.Join(base, "temp"), filepath.Join(base, "fixed")
		for _, dir := range []string{temp, fixed} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		const files = 8
		names := []string{base, temp, fixed}
		for i := range files {
			name := filepath.Join(fixed, fmt.Sprint(i))
			if err := os.WriteFile(name, []byte("old"), 0o644); err != nil {
				t.Fatal(err)
			}
			names = append(names, name)
		}
		if os.Getuid() == 0 {
			for _, name := range names {
				if err := os.Chown(name, ordinary, ordinary); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := os.Chmod(fixed, 0o555); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(fixed, 0o755) }) // for the removal
		e, err := portable.New(t.Context(), portable.Config{Dir: fixed, Start: k.ordinaryStart(t, base, temp)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
		var wg sync.WaitGroup
		for i := range files {
			wg.Go(func() {
				name, content := fmt.Sprint(i), strings.Repeat(fmt.Sprint(i), 10+i%2*(2<<20))
				written, err := e.WriteFile(t.Context(), name, strings.NewReader(content), env.WriteOptions{})
				if err != nil || !written.InPlace {
					t.Errorf("file %s: %+v, error %v", name, written, err)
				}
				if got, err := os.ReadFile(filepath.Join(fixed, name)); err != nil || string(got) != content {
					t.Errorf("file %s holds %d bytes, want %d, error %v", name, len(got), len(content), err)
				}
			})
		}
		wg.Wait()
	})
}

// ordinaryStart returns what starts shells of this kind as an ordinary user, who finds the programs that the kind is restricted to in
// base.
func (k kind) ordinaryStart(t *testing.T, base, temp string) func(context.Context) (portable.Shell, error) {
	t.Helper()
	path := os.Getenv("PATH")
	if k.only != nil {
		path = filepath.Join(base, "bin")
		if err := os.CopyFS(path, os.DirFS(k.only(t))); err != nil {
			t.Fatal(err)
		}
	}
	program, err := exec.LookPath(k.argv[0])
	if err != nil {
		t.Skipf("there is no %s", k.argv[0])
	}
	var user *syscall.Credential
	if os.Getuid() == 0 {
		user = &syscall.Credential{Uid: ordinary, Gid: ordinary}
	}
	return func(context.Context) (portable.Shell, error) {
		c := exec.Command(program, k.argv[1:]...) //nolint:noctx // It outlives the call.
		c.Env, c.Dir = []string{"PATH=" + path, "HOME=/", "TMPDIR=" + temp}, "/"
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: user}
		return startProcess(c)
	}
}
