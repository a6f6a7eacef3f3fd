package local_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// mount mounts, or skips the test where that is forbidden.
func mount(tb testing.TB, source, target, kind string, flags uintptr, data string) {
	tb.Helper()
	if err := unix.Mount(source, target, kind, flags, data); err != nil {
		tb.Skipf("mounting is not possible: %v", err)
	}
	tb.Cleanup(func() {
		if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
			tb.Error(err)
		}
	})
}

// TestInPlace writes to a file that is a mount point and so cannot be renamed over.
func TestInPlace(t *testing.T) {
	e := newEnv(t, local.Config{})
	dir := e.Info().WorkDir
	put(t, e, "source", "old and longer", env.WriteOptions{Mode: 0o640})
	put(t, e, "d/target", "", env.WriteOptions{})
	mount(t, dir+"/source", dir+"/d/target", "", unix.MS_BIND, "")
	for _, opts := range []env.WriteOptions{{IfSHA256: sum("old and longer")}, {Mode: 0o600}} {
		w := put(t, e, "d/target", "new", opts)
		if want := (env.Written{Size: 3, InPlace: true}); w != want {
			t.Errorf("%+v, want %+v", w, want)
		}
		wantContent(t, dir+"/source", "new")
	}
	if got := mode(t, dir+"/source"); got != 0o600 {
		t.Errorf("mode %v", got)
	}
	boom := errors.New("boom")
	_, err := e.WriteFile(t.Context(), "d/target", iotest.ErrReader(boom), env.WriteOptions{})
	wantPathError(t, err, "d/target", boom)
	_, err = e.WriteFile(t.Context(), "d/target", strings.NewReader("x"),
		env.WriteOptions{IfSHA256: sum("other")})
	wantPathError(t, err, "d/target", env.ErrChanged)
	wantContent(t, dir+"/source", "new")
	noTemps(t, dir+"/d")
}

func TestNoSpace(t *testing.T) {
	e := newEnv(t, local.Config{})
	dir := e.Info().WorkDir
	if err := os.Mkdir(dir+"/small", 0o755); err != nil {
		t.Fatal(err)
	}
	mount(t, "tmpfs", dir+"/small", "tmpfs", 0, "size=256k")
	put(t, e, "small/f", "old", env.WriteOptions{})
	_, err := e.WriteFile(t.Context(), "small/f", strings.NewReader(strings.Repeat("x", 1<<20)),
		env.WriteOptions{})
	wantPathError(t, err, "small/f", env.ErrNoSpace)
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v does not wrap the system's error", err)
	}
	wantContent(t, dir+"/small/f", "old")
	noTemps(t, dir+"/small")
}

// TestBusy removes a directory on which a file system is mounted.
func TestBusy(t *testing.T) {
	e := newEnv(t, local.Config{})
	dir := e.Info().WorkDir
	if err := os.Mkdir(dir+"/small", 0o755); err != nil {
		t.Fatal(err)
	}
	mount(t, "tmpfs", dir+"/small", "tmpfs", 0, "size=256k")
	err := e.Remove(t.Context(), "small", env.RemoveOptions{})
	wantPathError(t, err, "small", env.ErrBusy)
}

func TestOwnerIsKept(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may give files away")
	}
	e := newEnv(t, local.Config{})
	name := e.Info().WorkDir + "/f"
	put(t, e, "f", "old", env.WriteOptions{Mode: 0o644})
	if err := os.Chown(name, 1234, 4321); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(name, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	put(t, e, "f", "new", env.WriteOptions{})
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Uid != 1234 || st.Gid != 4321 || info.Mode() != 0o755|os.ModeSetuid {
		t.Errorf("%+v, %v", st, info.Mode())
	}
}
