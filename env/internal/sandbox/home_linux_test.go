package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// put writes files of a world, and makes their directories.
func (w *world) put(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(w.root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		w.write(t, name)
	}
	if w.uid >= 0 {
		w.as(t, w.uid)
	}
}

// reads reads each file in a sandbox, and checks which it can.
func (w *world) reads(t *testing.T, by Mechanism, readable, hidden []string) {
	t.Helper()
	script := "echo started"
	for _, name := range slices.Concat(readable, hidden) {
		script += `; grep -q content "$ROOT/` + name + `" && echo "read ` + name + `"`
	}
	out, code := w.run(t, by, script)
	if !strings.Contains(out, "started") || code == 125 {
		t.Fatalf("exit code %d, %s", code, out)
	}
	for _, name := range readable {
		if !strings.Contains(out, "read "+name+"\n") {
			t.Errorf("%s is hidden: %s", name, out)
		}
	}
	for _, name := range hidden {
		if strings.Contains(out, "read "+name+"\n") {
			t.Errorf("%s is read", name)
		}
	}
}

// TestHome reads the files of a home directory.
func TestHome(t *testing.T) {
	each(t, func(t *testing.T, w *world, by Mechanism) {
		w.vars["GOPATH"] = w.home + "/gopath:" + w.home + ":" + w.home + "/.ssh:" + w.home + "/.local"
		w.vars["JAVA_HOME"] = w.home + "/tools/jdk"
		w.vars["PATH"] = "/usr/bin:bin:" + w.home + "/tools/node/bin:" + w.home + "/bin:" +
			w.home + "/.local/bin:" + w.home + "/tools/scripts:" + w.home + "/.ssh/bin"
		readable := []string{
			"home/go/pkg/mod/x", "home/.cache/go-build/x", "home/.cargo/bin/x", "home/.gitconfig",
			"home/.config/git/config", "home/.local/share/uv/x", "home/gopath/x", "home/tools/jdk/lib/x",
			"home/tools/node/bin/x", "home/tools/node/lib/x", "home/bin/x", "home/.local/bin/x",
			"home/tools/scripts/x",
		}
		hidden := []string{
			"home/plain", "home/.ssh/id", "home/.ssh/bin/x", "home/.netrc", "home/.cargo/credentials.toml",
			"home/.config/git/credentials", "home/.config/gh/hosts.yml", "home/.config/other",
			"home/.local/share/other/x", "home/.local/state/x", "home/.cache/other/x", "home/tools/x",
			"home/tools/secret/x", "home/project/x", "home/.kaggle/kaggle.json", "home/.profile",
			"home/.config/Cursor/x", "home/.cache/huggingface/token", "home/.pulumi/credentials.json",
			"home/.local/share/gem/credentials", "home/.stack/upload/x", "home/.rye/credentials",
		}
		w.put(t, slices.Concat(readable, hidden)...)
		w.reads(t, by, readable, hidden)
		out, _ := w.run(t, by, `cd "$HOME" && pwd && ls -A`)
		if by == Bubblewrap && out != w.home+"\n.cache\n.cargo\n.config\n.gitconfig\n.local\n.rye\n"+
			".stack\nbin\ngo\ngopath\ntools\n" {
			t.Errorf("listed %q", out)
		}
		w.policy.Read = []string{w.home + "/project", w.home + "/.config/gh"}
		w.policy.Write = []string{w.home + "/.local/state"}
		w.reads(t, by, append(readable, "home/project/x", "home/.config/gh/hosts.yml",
			"home/.local/state/x"), []string{"home/plain", "home/.ssh/id"})
	})
}

// TestHomes has homes of many kinds.
func TestHomes(t *testing.T) {
	type kind struct {
		// make prepares a world, and returns the home directory as HOME names it.
		make func(t *testing.T, w *world) string
		// readable and hidden are files.
		readable, hidden []string
	}
	for name, tt := range map[string]kind{
		"missing": {
			make:     func(_ *testing.T, w *world) string { return w.root + "/none" },
			readable: []string{"home/plain"},
		},
		"the root": {
			make:     func(*testing.T, *world) string { return "/" },
			readable: []string{"home/plain", "out/file"},
		},
		"a directory of programs": {
			make:     func(*testing.T, *world) string { return "/usr/games" },
			readable: []string{"home/plain"},
		},
		"a symlink": {
			make: func(t *testing.T, w *world) string {
				if err := os.Symlink("home", w.root+"/link"); err != nil {
					t.Fatal(err)
				}
				return w.root + "/link"
			},
			readable: []string{"link/go/file"},
			hidden:   []string{"link/plain", "home/plain", "home/.ssh/id"},
		},
		"one that cannot be listed": {
			make: func(t *testing.T, w *world) string {
				if err := errors.Join(os.Chown(w.home, 0, 0), os.Chmod(w.home, 0o711)); err != nil {
					t.Skip(err)
				}
				return w.home
			},
			readable: []string{"home/go/file"},
			hidden:   []string{"home/plain", "home/.ssh/id"},
		},
		"the working directory in it": {
			make: func(t *testing.T, w *world) string {
				w.put(t, "home/tree/.git/HEAD", "home/tree/other", "home/tree/sub/file", "home/beside/x",
					"home/tree/sub/.kube/config")
				w.policy.Dir = w.home + "/tree/sub"
				w.policy.Hide = []string{w.home + "/tree/secret"}
				w.put(t, "home/tree/secret")
				return w.home
			},
			readable: []string{"home/tree/other", "home/tree/sub/file", "home/go/file"},
			hidden:   []string{"home/beside/x", "home/plain", "home/tree/secret"},
		},
		"symlinks in it": {
			make: func(t *testing.T, w *world) string {
				w.put(t, "home/dotfiles/config/git/config", "home/dotfiles/private", "home/tools/x/bin/x",
					"home/tools/x/lib/x", "home/keys/id", "out/cargo/x", "home/data/x")
				for _, dir := range []string{"home/.config", "home/.ssh"} {
					if err := os.RemoveAll(w.root + "/" + dir); err != nil {
						t.Fatal(err)
					}
				}
				for link, target := range map[string]string{
					".config": "dotfiles/config", ".ssh": "keys", ".cargo": "../out/cargo", "x": "tools/x",
					".pyenv": "keys", ".rustup": ".", "link": "data",
				} {
					if err := os.Symlink(target, w.home+"/"+link); err != nil {
						t.Fatal(err)
					}
				}
				w.vars["PATH"] = w.home + "/x/bin"
				w.policy.Read = []string{w.home + "/link"}
				return w.home
			},
			readable: []string{
				"home/.config/git/config", "home/x/bin/x", "home/x/lib/x", "home/.cargo/x",
				"home/link/x",
			},
			hidden: []string{
				"home/.ssh/id", "home/keys/id", "home/dotfiles/private", "home/.pyenv/id",
				"home/.rustup/plain",
			},
		},
		"one that commands may change": {
			make: func(_ *testing.T, w *world) string {
				w.policy.Write = []string{w.home}
				return w.home
			},
			readable: []string{"home/plain", "home/go/file"},
		},
		"one that commands may read": {
			make: func(_ *testing.T, w *world) string {
				w.policy.Read = []string{w.home}
				return w.home
			},
			readable: []string{"home/plain", "home/.ssh/id"},
		},
		"a directory in it that commands may change": {
			make: func(t *testing.T, w *world) string {
				w.put(t, "home/.m2/repository/x", "home/.m2/settings.xml", "home/mine/x")
				w.policy.Write = []string{w.home + "/.m2", w.home + "/mine"}
				return w.home
			},
			readable: []string{"home/.m2/repository/x", "home/mine/x"},
			hidden:   []string{"home/plain"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, w *world, by Mechanism) {
				home := tt.make(t, w)
				if w.uid >= 0 && name != "one that cannot be listed" {
					w.as(t, w.uid)
				}
				w.homes = []string{home}
				w.reads(t, by, tt.readable, tt.hidden)
			})
		})
	}
}

// TestHomeInTemporaryDir has a home in the directory for temporary files, which is another one in
// the sandbox.
func TestHomeInTemporaryDir(t *testing.T) {
	need(t, Bubblewrap)
	w := newWorld(t)
	home := t.TempDir()
	if err := errors.Join(os.Mkdir(home+"/go", 0o755), os.Mkdir(home+"/.ssh", 0o755)); err != nil {
		t.Fatal(err)
	}
	w.homes = []string{home}
	out, code := w.run(t, Bubblewrap, `cd "`+home+`" && pwd && ls -A && ! echo x >file`)
	if code != 0 || !strings.HasPrefix(out, home+"\ngo\n") {
		t.Errorf("exit code %d, %s", code, out)
	}
}

// TestSeveralHomes has root's home beside others, with a working directory and programs in one.
func TestSeveralHomes(t *testing.T) {
	inTurn(t, func(t *testing.T, w *world, by Mechanism) {
		w.put(t, "other/.ssh/id", "other/plain", "other/tree/file", "other/.cargo/x", "other/x/bin/x",
			"other/x/share/x", "other/.bun/bin/x")
		w.vars["PATH"] = w.root + "/other/x/bin"
		w.policy.Dir = w.root + "/other/tree"
		w.homes = []string{w.home, w.root + "/other"}
		w.reads(t, by, []string{"home/go/file", "other/tree/file", "other/x/bin/x", "other/x/share/x"},
			[]string{"other/.ssh/id", "other/plain", "other/.cargo/x", "home/plain"})
	})
}

// TestHiddenPaths has the paths by which env verify tries to read hidden files.
func TestHiddenPaths(t *testing.T) {
	w := newWorld(t)
	w.put(t, "home/.cargo/credentials.toml", "home/.cargo/x", "home/.config/a/x",
		"home/.config/git/config", "home/project/x")
	w.policy.Dir = w.home + "/project"
	p := w.plan(t, Landlock)
	secrets, home := p.HiddenPaths(100)
	for name, in := range map[string][]string{
		"home/.cargo/credentials.toml": secrets, "home/.ssh": home, "home/.netrc": home,
		"home/.config/a": home, "home/plain": home,
	} {
		if !slices.Contains(in, filepath.Join(w.root, name)) {
			t.Errorf("%s is not among %q", name, in)
		}
	}
	for _, name := range slices.Concat(secrets, home) {
		for _, readable := range []string{
			"home/project", "home/.config/git", "home/.cargo/x", "home/go",
		} {
			if Within(filepath.Join(w.root, readable), name) {
				t.Errorf("%s is, or contains, a readable path", name)
			}
		}
	}
}
