package workspace_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/workspace"
)

// meddler calls a function once in the middle of an upload.
type meddler struct {
	env.Environment
	at   []byte
	call func()
}

func (m *meddler) CopyIn(ctx context.Context, dir string, r io.Reader) error {
	return m.Environment.CopyIn(ctx, dir, readerFunc(func(p []byte) (int, error) {
		n, err := r.Read(p[:min(len(p), 512)])
		if m.call != nil && bytes.Contains(p[:n], m.at) {
			m.call()
			m.call = nil
		}
		return n, err
	}))
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Git may pack objects while they are sent.
func TestUploadWhileGitPacks(t *testing.T) {
	t.Parallel()
	needGit(t)
	many := func(t *testing.T, dir string) {
		makeRepository(t, dir)
		files := tree{}
		for i := range 300 {
			files[fmt.Sprint("f", i)] = text(fmt.Sprintln(i))
		}
		put(t, dir, files)
		commit(t, dir, "many")
	}
	for _, tt := range []struct {
		name, at string
		make     func(t *testing.T, dir string)
		args     []string
	}{
		{"loose", ".git/objects/1", many, []string{"gc", "-q", "--prune=now"}},
		{"packed", ".git/objects/pack/pack-", func(t *testing.T, dir string) {
			many(t, dir)
			git(t, dir, "repack", "-q", "-d")
			put(t, dir, tree{"more": text("more\n")})
			commit(t, dir, "more")
			git(t, dir, "repack", "-q", "-d")
		}, []string{"repack", "-q", "-a", "-d"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			host := t.TempDir()
			tt.make(t, host)
			w := open(t, host, workspace.Options{})
			e, envDir := newEnvironment(t)
			m := &meddler{Environment: e, at: []byte(tt.at), call: func() { git(t, host, tt.args...) }}
			if err := w.Upload(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			if m.call != nil {
				t.Fatal("git did not run meanwhile")
			}
			sameGit(t, host, envDir)
		})
	}
}

// Upload sends a pack only with its index.
func TestUploadSendsWholePacks(t *testing.T) {
	t.Parallel()
	needGit(t)
	host := t.TempDir()
	makeRepository(t, host)
	git(t, host, "gc", "-q")
	number := strings.Repeat("0", 40)
	put(t, host, tree{".git/objects/pack/pack-" + number + ".pack": text("x")})
	_, envDir := upload(t, open(t, host, workspace.Options{}))
	sameGit(t, host, envDir)
	put(t, host, tree{".git/objects/pack/pack-" + number + ".idx": text("x")})
	remove(t, host, ".git/objects/pack/pack-"+number+".pack")
	w := open(t, host, workspace.Options{})
	e, _ := newEnvironment(t)
	if err := w.Upload(t.Context(), e); err == nil || !strings.Contains(err.Error(), "try again") {
		t.Errorf("%v, want the remedy", err)
	}
}

func TestUploadOfUnreadableObject(t *testing.T) {
	t.Parallel()
	needGit(t)
	host := t.TempDir()
	makeRepository(t, host)
	objects, err := filepath.Glob(filepath.Join(host, ".git/objects/??/*"))
	if err != nil || len(objects) == 0 {
		t.Fatal(objects, err)
	}
	if err := os.Remove(objects[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(objects[0], 0o755); err != nil {
		t.Fatal(err)
	}
	w := open(t, host, workspace.Options{})
	e, _ := newEnvironment(t)
	if err := w.Upload(t.Context(), e); err == nil || !strings.Contains(err.Error(), "git fsck") {
		t.Errorf("%v, want the remedy", err)
	}
}

func TestNotes(t *testing.T) {
	t.Parallel()
	needGit(t)
	for _, tt := range []struct {
		name, want string
		make       func(t *testing.T, dir string)
		ignored    []string
	}{
		{"rebase", "rebase", func(t *testing.T, dir string) {
			git(t, dir, "checkout", "-q", "-b", "side", "v1")
			put(t, dir, tree{"a.txt": text("other\n")})
			commit(t, dir, "side")
			if out, err := tryGit(dir, nil, "-c", "user.name=x", "-c", "user.email=x@example.com", "rebase",
				"main"); err == nil {
				t.Fatal(out)
			}
		}, nil},
		{"ident", "(ident)", func(t *testing.T, dir string) {
			put(t, dir, tree{"dir/.gitattributes": text("# filter=x\n*.c ident\n")})
		}, nil},
		{"encoding", "(working-tree-encoding)", func(t *testing.T, dir string) {
			put(t, dir, tree{".git/info/attributes": text("*.c working-tree-encoding=UTF-16 eol=lf\n")})
		}, nil},
		{"autocrlf", "(autocrlf)", func(t *testing.T, dir string) {
			git(t, dir, "config", "core.autocrlf",
				"input")
		}, nil},
		{"deep filter", "filters", func(t *testing.T, dir string) {
			put(t, dir,
				tree{"dir/.gitattributes": text("* filter=lfs\n")})
		}, nil},
		{"no match", `"nothing/*"`, func(*testing.T, string) {}, []string{"nothing/*", "dir"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			makeRepository(t, dir)
			tt.make(t, dir)
			w := open(t, dir, workspace.Options{UploadIgnored: tt.ignored})
			if notes := w.Warnings(); len(notes) != 1 || !strings.Contains(notes[0], tt.want) {
				t.Errorf("notes %q, want one with %q", notes, tt.want)
			}
		})
	}
	for pattern, want := range map[string]string{
		"/out": "relative", "./a": "without",
		"../x": "without", "a//b": "without", "": "without", "[": "syntax",
	} {
		_, err := workspace.Open(t.Context(), t.TempDir(),
			workspace.Options{UploadIgnored: []string{pattern}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", pattern, err, want)
		}
	}
}

// Notes report an unreadable directory once.
func TestNoteOfUnreadableDir(t *testing.T) {
	t.Parallel()
	if os.Getuid() <= 0 {
		t.Skip("permissions do not bind root, and windows has others")
	}
	dir := t.TempDir()
	put(t, dir, tree{"closed/x": text("x")})
	if err := os.Chmod(filepath.Join(dir, "closed"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(dir, "closed"), 0o700) })
	same(t, "notes", []string{"closed cannot be read and is not uploaded"}, open(t, dir,
		workspace.Options{}).Warnings())
}

// Open refuses git directories with symlinks into another repository, as git-new-workdir makes
// them.
func TestSymlinksInGitDir(t *testing.T) {
	t.Parallel()
	needGit(t)
	dir := t.TempDir()
	makeRepository(t, filepath.Join(dir, "main"))
	host := filepath.Join(dir, "host")
	links := tree{".git/HEAD": text("ref: refs/heads/main\n")}
	for _, name := range []string{"config", "refs", "objects", "info", "packed-refs"} {
		links[".git/"+name] = file{Target: filepath.Join(dir, "main/.git", name)}
	}
	put(t, host, links)
	_, err := workspace.Open(t.Context(), host, workspace.Options{})
	if err == nil || !strings.Contains(err.Error(), "git worktree add") {
		t.Errorf("%v, want the remedy", err)
	}
}

// With core.fileMode=false the index records which files are executable.
func TestExecutableByIndex(t *testing.T) {
	t.Parallel()
	needGit(t)
	host := t.TempDir()
	makeRepository(t, host)
	git(t, host, "config", "core.filemode", "false")
	if err := os.Chmod(filepath.Join(host, "run"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(host, "a.txt"), 0o755); err != nil {
		t.Fatal(err)
	}
	w := open(t, host, workspace.Options{})
	e, envDir := upload(t, w)
	got := read(t, envDir)
	if !got["run"].Executable || got["a.txt"].Executable {
		t.Errorf("executable: run %v, a.txt %v", got["run"].Executable, got["a.txt"].Executable)
	}
	if !changes(t, w, e).Empty() {
		t.Error("unexpected changes")
	}
	put(t, envDir, tree{"a.txt": text("A\n"), "run": {Content: "#!/bin/sh\n:\n", Executable: true}})
	applied, err := changes(t, w, e).Apply(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(applied.Written)
	same(t, "written", []string{"a.txt", "run"}, applied.Written)
}

// A file .git that is not a repository does not hide the rules of the one above.
func TestEntryThatIsNoRepository(t *testing.T) {
	t.Parallel()
	needGit(t)
	repo := t.TempDir()
	makeRepository(t, repo)
	put(t, repo, tree{
		"dir/.git/": {}, "dir/x.log": text("ignored"), "dir/in/y.log": text("ignored"),
		"dir/in/.git/": {}, "dir/in/z": text("z"),
	})
	w := open(t, filepath.Join(repo, "dir"), workspace.Options{})
	_, envDir := upload(t, w)
	same(t, "in the environment", tree{"b.txt": text("b\n"), "in/z": text("z")}, read(t, envDir))
}
