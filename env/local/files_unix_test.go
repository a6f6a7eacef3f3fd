//go:build unix

package local_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

func link(tb testing.TB, target, name string) {
	tb.Helper()
	if err := os.Symlink(target, name); err != nil {
		tb.Fatal(err)
	}
}

func mode(tb testing.TB, name string) fs.FileMode {
	tb.Helper()
	info, err := os.Lstat(name)
	if err != nil {
		tb.Fatal(err)
	}
	return info.Mode()
}

// notRoot skips tests of rights that root does not need.
func notRoot(tb testing.TB) {
	tb.Helper()
	if os.Getuid() == 0 {
		tb.Skip("root needs no rights")
	}
}

func TestModes(t *testing.T) {
	umask := unix.Umask(0o027)
	defer unix.Umask(umask)
	e := newEnv(t, local.Config{})
	dir := e.Info().WorkDir
	for i, tt := range []struct {
		before, ask, want fs.FileMode // before 0: a new file
	}{
		{0, 0, 0o640},
		{0, 0o777, 0o777},
		{0, 0o600, 0o600},
		{0o755, 0, 0o755},
		{0o666, 0, 0o666},
		{0o600, 0o644, 0o644},
		{0o700 | fs.ModeSetuid, 0, 0o700 | fs.ModeSetuid},
	} {
		name := fmt.Sprintf("%s/p%d/f", dir, i)
		if tt.before != 0 {
			put(t, e, name, "old", env.WriteOptions{})
			if err := os.Chmod(name, tt.before); err != nil {
				t.Fatal(err)
			}
		}
		put(t, e, name, "new", env.WriteOptions{Mode: tt.ask})
		if got := mode(t, name); got != tt.want {
			t.Errorf("%v, asked for %v: got %v, want %v", tt.before, tt.ask, got, tt.want)
		}
		if got := mode(t, filepath.Dir(name)); got != fs.ModeDir|0o750 {
			t.Errorf("parent has mode %v", got)
		}
	}
}

func TestWriteFollowsLinks(t *testing.T) {
	e := newEnv(t, local.Config{})
	dir := e.Info().WorkDir
	put(t, e, "real/target", "old", env.WriteOptions{Mode: 0o751})
	put(t, e, "other/x", "", env.WriteOptions{})
	link(t, "real/target", dir+"/rel")
	link(t, dir+"/real/target", dir+"/abs")
	link(t, "rel", dir+"/chain")
	link(t, "../real", dir+"/other/up")
	link(t, "up/../real/target", dir+"/other/dots")
	link(t, "real/fresh", dir+"/dangling")
	link(t, "loop2", dir+"/loop")
	link(t, "loop", dir+"/loop2")
	link(t, "real", dir+"/dirlink")
	for i, name := range []string{
		"rel", "abs", "chain", "other/up/target", "other/dots",
		"dirlink/target",
	} {
		content := fmt.Sprint("through ", name)
		if w := put(t, e, name, content, env.WriteOptions{}); w.Created || w.InPlace {
			t.Errorf("%s: %+v", name, w)
		}
		wantContent(t, dir+"/real/target", content)
		if got := mode(t, dir+"/real/target"); got != 0o751 {
			t.Errorf("%d: mode %v", i, got)
		}
	}
	for _, name := range []string{"rel", "abs", "chain", "other/dots"} {
		if mode(t, filepath.Join(dir, name)).Type() != fs.ModeSymlink {
			t.Errorf("%s is no link any more", name)
		}
	}
	_, err := e.WriteFile(t.Context(), "dangling", strings.NewReader(""),
		env.WriteOptions{MustNotExist: true})
	wantPathError(t, err, "dangling", fs.ErrExist)
	if w := put(t, e, "dangling", "made", env.WriteOptions{}); !w.Created {
		t.Errorf("%+v", w)
	}
	wantContent(t, dir+"/real/fresh", "made")
	_, err = e.WriteFile(t.Context(), "loop", strings.NewReader(""), env.WriteOptions{})
	wantPathError(t, err, "loop", syscall.ELOOP)
	_, err = e.Stat(t.Context(), "loop")
	wantPathError(t, err, "loop", syscall.ELOOP)
	_, err = e.WriteFile(t.Context(), "dirlink", strings.NewReader(""), env.WriteOptions{})
	wantPathError(t, err, "dirlink", env.ErrIsDir)
	noTemps(t, dir)
	noTemps(t, dir+"/real")
}

func TestDotDotAfterLink(t *testing.T) {
	e := newEnv(t, local.Config{})
	dir := e.Info().WorkDir
	put(t, e, "a/b/file", "", env.WriteOptions{})
	link(t, "a/b", dir+"/l")
	put(t, e, "l/../x", "x", env.WriteOptions{})
	wantContent(t, dir+"/a/x", "x")
	_, err := e.Stat(t.Context(), "a/b/file/")
	wantPathError(t, err, "a/b/file/", env.ErrNotDir)
}

func TestSpecialFiles(t *testing.T) {
	e := newEnv(t, local.Config{})
	dir := t.TempDir()
	if err := unix.Mkfifo(dir+"/fifo", 0o666); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/s")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	link(t, "fifo", dir+"/link")
	for _, name := range []string{dir + "/fifo", dir + "/s", dir + "/link", "/dev/null", "/dev/zero"} {
		_, err := e.Open(t.Context(), name)
		wantPathError(t, err, name, env.ErrNotRegular)
		_, err = e.WriteFile(t.Context(), name, strings.NewReader("x"), env.WriteOptions{})
		wantPathError(t, err, name, env.ErrNotRegular)
		_, err = e.ReadDir(t.Context(), name)
		wantPathError(t, err, name, env.ErrNotDir)
		_, err = e.CopyOut(t.Context(), name)
		wantPathError(t, err, name, env.ErrNotDir)
		if info, err := e.Stat(t.Context(), name); err != nil || info.Mode().IsRegular() {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if err := e.Remove(t.Context(), dir+"/fifo", env.RemoveOptions{}); err != nil {
		t.Error(err)
	}
}

// TestInPlace writes to files that cannot be replaced, because nothing can be created beside them.
func TestInPlace(t *testing.T) {
	notRoot(t)
	e := newEnv(t, local.Config{})
	dir := e.Info().WorkDir
	put(t, e, "d/file", "old content", env.WriteOptions{Mode: 0o640})
	if err := os.Chmod(dir+"/d", 0o555); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.Chmod(dir+"/d", 0o755) }()
	for _, content := range []string{"new", strings.Repeat("large", 1<<20)} {
		if w := put(t, e, "d/file", content, env.WriteOptions{}); !w.InPlace || w.Created ||
			w.Size != int64(len(content)) {
			t.Errorf("%+v", w)
		}
		wantContent(t, dir+"/d/file", content)
	}
	boom := errors.New("boom")
	_, err := e.WriteFile(t.Context(), "d/file", readerFunc(func([]byte) (int, error) {
		return 0,
			boom
	}), env.WriteOptions{})
	wantPathError(t, err, "d/file", boom)
	_, err = e.WriteFile(t.Context(), "d/file", strings.NewReader("x"),
		env.WriteOptions{IfSHA256: sum("other")})
	wantPathError(t, err, "d/file", env.ErrChanged)
	_, err = e.WriteFile(t.Context(), "d/new", strings.NewReader("x"), env.WriteOptions{})
	wantPathError(t, err, "d/new", fs.ErrPermission)
	put(t, e, "d/file", "last", env.WriteOptions{Mode: 0o600})
	if got := mode(t, dir+"/d/file"); got != 0o600 {
		t.Errorf("mode %v", got)
	}
}

func TestHardLinkKeepsOldContent(t *testing.T) {
	e := newEnv(t, local.Config{})
	dir := e.Info().WorkDir
	put(t, e, "a", "old", env.WriteOptions{})
	if err := os.Link(dir+"/a", dir+"/b"); err != nil {
		t.Fatal(err)
	}
	put(t, e, "a", "new", env.WriteOptions{})
	wantContent(t, dir+"/a", "new")
	wantContent(t, dir+"/b", "old")
}
