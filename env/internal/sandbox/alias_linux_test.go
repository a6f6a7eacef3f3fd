package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
)

// bind mounts a directory or file of a world at a second name, or skips the test where that is
// forbidden.
func (w *world) bind(t *testing.T, from, to string, flags uintptr) {
	t.Helper()
	from, to = filepath.Join(w.root, from), filepath.Join(w.root, to)
	var err error
	if isDir(from) {
		err = os.MkdirAll(to, 0o755)
	} else {
		err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, nil, 0o644))
	}
	if err != nil {
		t.Fatal(err)
	}
	w.mount(t, from, to, "", unix.MS_BIND|flags)
}

func (w *world) mount(t *testing.T, from, to, kind string, flags uintptr) {
	t.Helper()
	if err := unix.Mount(from, to, kind, flags, ""); err != nil {
		t.Skipf("mounting is not possible: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(to, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// aliases mount a home, a part of it or a directory above it at a second name. Each returns names
// by which secrets may be read.
var aliases = map[string]func(t *testing.T, w *world) []string{
	"a parent": func(t *testing.T, w *world) []string {
		w.bind(t, ".", "alias", 0)
		return []string{"alias/home/.ssh/id", "alias/home/.netrc", "alias/home/plain"}
	},
	"the home": func(t *testing.T, w *world) []string {
		w.bind(t, "home", "a lias\\040", 0)
		return []string{"a lias\\040/.ssh/id", "a lias\\040/.netrc", "a lias\\040/plain"}
	},
	"a secret": func(t *testing.T, w *world) []string {
		w.bind(t, "home/.ssh", "alias", 0)
		w.bind(t, "home/.netrc", "password", 0)
		return []string{"alias/id", "password"}
	},
	"below a secret": func(t *testing.T, w *world) []string {
		if err := os.Mkdir(w.home+"/.ssh/keys", 0o755); err != nil {
			t.Fatal(err)
		}
		w.write(t, "home/.ssh/keys/id")
		w.bind(t, "home/.ssh/keys", "alias", 0)
		return []string{"alias/id"}
	},
	"twice": func(t *testing.T, w *world) []string {
		w.bind(t, ".", "one/alias", 0)
		w.bind(t, "one", "two", unix.MS_REC)
		return []string{"one/alias/home/.ssh/id", "two/alias/home/.ssh/id"}
	},
	"a secret from elsewhere": func(t *testing.T, w *world) []string {
		if err := os.Rename(w.home+"/.ssh", w.out+"/.ssh"); err != nil {
			t.Fatal(err)
		}
		w.bind(t, "out/.ssh", "home/.ssh", 0)
		w.write(t, "home/.ssh/id")
		return []string{"out/.ssh/id"}
	},
	"a covered home": func(t *testing.T, w *world) []string {
		w.bind(t, ".", "alias", 0)
		w.mount(t, "none", w.root+"/alias/home", "tmpfs", 0)
		return nil
	},
	"a home of its own file system": func(t *testing.T, w *world) []string {
		w.mount(t, "none", w.home, "tmpfs", 0)
		if err := os.Mkdir(w.home+"/.ssh", 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"home/.ssh/id", "home/.netrc", "home/plain"} {
			w.write(t, name)
		}
		w.bind(t, ".", "alias", 0)
		return nil
	},
}

// TestAliases reads secrets by the names that further mounts give them.
func TestAliases(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount")
	}
	for name, alias := range aliases {
		t.Run(name, func(t *testing.T) {
			inTurn(t, func(t *testing.T, w *world, by Mechanism) {
				names := alias(t, w)
				if w.uid >= 0 {
					w.as(t, w.uid)
				}
				script := "echo started"
				for _, n := range append(names, "home/.ssh/id", "home/.netrc", "home/plain") {
					script += `; cat "$ROOT/` + strings.ReplaceAll(n, `\`, `\\`) + `"`
				}
				out, _ := w.run(t, by, script)
				if strings.Contains(out, "content") || !strings.Contains(out, "started") {
					t.Errorf("printed %q", out)
				}
				p := w.plan(t, by)
				secrets, home := p.HiddenPaths(1000)
				for _, n := range names {
					within := func(hidden string) bool { return Within(filepath.Join(w.root, n), hidden) }
					if !slices.ContainsFunc(slices.Concat(secrets, home), within) {
						t.Errorf("env verify does not probe %s", n)
					}
				}
			})
		})
	}
}

// TestHomeInWork has the home directory mounted below the working directory, and as it.
func TestHomeInWork(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount")
	}
	for name, tt := range map[string]struct{ from, to, want string }{
		"a parent below": {".", "work/inner", "holds the home directory"},
		"itself":         {"home", "work", "is the home directory"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.bind(t, tt.from, tt.to, 0)
			var unable *Error
			_, err := New(w.policy, Bubblewrap, []string{w.home}, os.Getenv)
			if !errors.As(err, &unable) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

// TestWritableAliases changes protected files by a second mount below the working directory.
func TestWritableAliases(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount")
	}
	need(t, Bubblewrap)
	for name, tt := range map[string]struct{ from, to, git string }{
		"the working directory": {"work", "work/in/ner", "work/in/ner/.git"},
		"the repository":        {"work/.git", "work/inner", "work/inner"},
		"another writable one":  {"work", "out/inner", "out/inner/.git"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.policy.Write = []string{w.out}
			w.bind(t, tt.from, tt.to, 0)
			out, _ := w.run(t, Bubblewrap, `cd "$ROOT/`+tt.git+`"; echo started; echo x >config
				echo x >hooks/post-commit; mv hooks old; echo x >"$WORK/new"`)
			if !strings.Contains(out, "started") || w.content("work/new") != "x\n" ||
				w.content("work/.git/config") != "content of work/.git/config\n" ||
				exists(w.work+"/.git/hooks/post-commit") || exists(w.work+"/.git/old") {
				t.Errorf("printed %q", out)
			}
		})
	}
}

// TestMountsComeAndGo starts a sandbox while another program mounts something: the failed start is
// tried again, and one that fails otherwise is not.
func TestMountsComeAndGo(t *testing.T) {
	w := newWorld(t)
	for name, mounting := range map[string]bool{"a mount": true, "nothing": false} {
		starts := 0
		none, err := Choose(t.Context(), w.work, env.Sandbox{Require: true}, nil,
			Machine{Mechanisms: []Mechanism{Bubblewrap}, Homes: []string{w.home}},
			func(p Plan) (env.Info, func() error, error) {
				if starts++; starts == 2 {
					return env.Info{}, p.Tidy, nil
				}
				if mounting {
					if err := unix.Mount("none", w.out, "tmpfs", 0, ""); err != nil {
						t.Skipf("mounting is not possible: %v", err)
					}
					if err := unix.Unmount(w.out, unix.MNT_DETACH); err != nil {
						t.Error(err)
					}
				}
				return env.Info{}, nil, errors.Join(&StartFailure{Text: "a mount has gone"}, p.Tidy())
			})
		if err != nil || (none == nil) != mounting || (starts == 2) != mounting {
			t.Errorf("%s: %d starts, %v, %v", name, starts, none, err)
		}
	}
}
