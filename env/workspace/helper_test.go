package workspace_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// needGit skips where repositories cannot be made and compared.
func needGit(t testing.TB) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("windows has neither executable bits nor, for ordinary users, symlinks")
	}
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is needed to make repositories")
	}
}

// tryGit runs git in dir with no configuration but that of the repository.
func tryGit(dir string, stdin []byte, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{
		"-c", "protocol.file.allow=always", "-c", "core.fsync=none",
	}, args...)...)
	cmd.Dir = dir
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Env = append(
		os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_CEILING_DIRECTORIES="+filepath.Dir(dir),
		"GIT_TERMINAL_PROMPT=0",
	)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// git is tryGit that must succeed.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := tryGit(dir, nil, args...)
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// copyTree copies the directory from, git directories included. It is not os.CopyFS: names in io/fs
// are UTF-8.
func copyTree(t testing.TB, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from+"/.", to).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// commit commits all files in dir.
func commit(t testing.TB, dir, message string) {
	t.Helper()
	git(t, dir, "add", "-A")
	git(t, dir, "-c", "user.name=host", "-c", "user.email=host@example.com", "commit", "-q",
		"--allow-empty", "-m", message)
}

// file is a file or symlink in a test tree.
type file struct {
	Content    string
	Executable bool
	Target     string
}

// tree are the files of a directory by name. A name with a trailing slash is an empty directory.
type tree map[string]file

func text(s string) file { return file{Content: s} }

// put writes a tree.
func put(t testing.TB, dir string, files tree) {
	t.Helper()
	for name, f := range files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(p, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(p)
		var err error
		if f.Target != "" {
			err = os.Symlink(f.Target, p)
		} else {
			mode := fs.FileMode(0o644)
			if f.Executable {
				mode = 0o755
			}
			err = os.WriteFile(p, []byte(f.Content), mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// read reads a tree, without directories named .git.
func read(t testing.TB, dir string) tree {
	t.Helper()
	got := tree{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		switch {
		case d.Name() == ".git":
			if d.IsDir() {
				return fs.SkipDir
			}
		case d.IsDir():
			entries, err := os.ReadDir(p)
			if err != nil || len(entries) > 0 {
				return err
			}
			got[name+"/"] = file{}
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			got[name] = file{Target: target}
		default:
			content, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			fi, err := d.Info()
			if err != nil {
				return err
			}
			got[name] = file{Content: string(content), Executable: fi.Mode()&0o100 != 0}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func same(t testing.TB, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func open(t testing.TB, dir string, o workspace.Options) *workspace.Workspace {
	t.Helper()
	o.SpoolDir = t.TempDir()
	w, err := workspace.Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// newEnvironment returns an environment in an empty directory of this machine.
func newEnvironment(t testing.TB) (env.Environment, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "env")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	e, err := local.New(local.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, dir
}

// upload sends the workspace to a new environment and returns it with its directory.
func upload(t testing.TB, w *workspace.Workspace) (env.Environment, string) {
	t.Helper()
	e, dir := newEnvironment(t)
	if err := w.Upload(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	return e, dir
}

func changes(t testing.TB, w *workspace.Workspace, e env.Environment) *workspace.Changes {
	t.Helper()
	c, err := w.Changes(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// status is the status of a working tree, with ignored files.
func status(t testing.TB, dir string) string {
	t.Helper()
	return git(t, dir, "status", "--porcelain=v2", "--branch")
}
