//go:build unix

package integration_test

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// nobody is an unprivileged user.
const nobody = 65534

// TestOrdinaryUser runs tests of environments once more as a user without rights, since root may
// read and write what others may not.
func TestOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to become another user; the tests themselves run as this user anyway")
	}
	if testing.Short() {
		t.Skip("runs tests of other packages again")
	}
	for _, pkg := range []string{"env", "env/local", "env/internal/wire", "env/sandboxd"} {
		t.Run(path.Base(pkg), func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "user-") //nolint:usetesting // others must reach it
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			bin := filepath.Join(dir, "pkg.test")
			here := filepath.Join(dir, "pkg") // the checkout may be closed to others
			if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", bin,
				module+"/"+pkg).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if err := os.CopyFS(here, os.DirFS(filepath.Join("..", filepath.FromSlash(pkg)))); err != nil {
				t.Fatal(err)
			}
			if err := chownTree(dir); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), bin, "-test.short", "-test.timeout=20m")
			cmd.Dir = here
			cmd.Env = append(os.Environ(), "HOME="+dir, "TMPDIR="+dir, "XDG_CACHE_HOME="+dir)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.HasSuffix(strings.TrimSpace(string(out)), "PASS") {
				t.Errorf("as user %d: %v\n%.20000s", nobody, err, out)
			}
		})
	}
}

// chownTree gives a tree to nobody.
func chownTree(dir string) error {
	return filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, nobody, nobody)
	})
}
