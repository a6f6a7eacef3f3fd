//go:build unix

package local_test

import (
	"fmt"
	"io/fs"
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

func TestModes(t *testing.T) {
	umask := unix.Umask(0o027)
	defer unix.Umask(umask)
	e := newEnv(t, local.Config{})
	dir := e.Info().WorkDir
	for i, tt := range []struct {
		before, option, want fs.FileMode // before 0: a new file
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
		put(t, e, name, "new", env.WriteOptions{Mode: tt.option})
		if got := mode(t, name); got != tt.want {
			t.Errorf("%v, option %v: got %v, want %v", tt.before, tt.option, got, tt.want)
		}
		if got := mode(t, filepath.Dir(name)); got != fs.ModeDir|0o750 {
			t.Errorf("parent has mode %v", got)
		}
	}
}

func TestWriteFollowsSymlinks(t *testing.T) {
	e := newEnv(t, local.Config{})
	dir := e.Info().WorkDir
	put(t, e, "real/target", "old", env.WriteOptions{Mode: 0o751})
	put(t, e, "other/x", "", env.WriteOptions{})
	for name, target := range map[string]string{
		"rel": "real/target", "abs": dir + "/real/target", "chain": "rel", "other/up": "../real",
		"other/dots": "up/../real/target", "loop": "loop2", "loop2": "loop", "dirlink": "real",
	} {
		link(t, target, filepath.Join(dir, name))
	}
	for _, name := range []string{
		"rel", "abs", "chain", "other/up/target", "other/dots", "dirlink/target",
		"dirlink/../real/target",
	} {
		content := fmt.Sprint("through ", name)
		if w := put(t, e, name, content, env.WriteOptions{}); w.Created || w.InPlace {
			t.Errorf("%s: %+v", name, w)
		}
		wantContent(t, dir+"/real/target", content)
		if got := mode(t, dir+"/real/target"); got != 0o751 {
			t.Errorf("%s: mode %v", name, got)
		}
	}
	for _, name := range []string{"rel", "abs", "chain", "other/dots"} {
		if mode(t, filepath.Join(dir, name)).Type() != fs.ModeSymlink {
			t.Errorf("%s was replaced", name)
		}
	}
	for name, want := range map[string]error{"loop": syscall.ELOOP, "dirlink": env.ErrIsDir} {
		_, err := e.WriteFile(t.Context(), name, strings.NewReader(""), env.WriteOptions{})
		wantPathError(t, err, name, want)
	}
	_, err := e.Stat(t.Context(), "real/target/")
	wantPathError(t, err, "real/target/", env.ErrNotDir)
	noTemps(t, dir)
	noTemps(t, dir+"/real")
}
