package workspace_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/env/workspace"
)

const canary = "CANARY-7f3a9"

// spoil writes the canary to all files in which git, or a CI job, may keep a secret.
func spoil(t *testing.T, work, gitDir string) {
	t.Helper()
	git(t, work, "config", "http.https://example.com/.extraheader", "AUTHORIZATION: basic "+canary)
	git(t, work, "config", "credential.helper", "!echo password="+canary)
	git(t, work, "config", "credential.https://example.com.username", canary)
	git(t, work, "config", "remote.tokens.url", "https://user:"+canary+"@example.com/repo.git")
	git(t, work, "config", "remote.tokens.fetch", "+refs/heads/*:refs/remotes/tokens/*")
	git(t, work, "config", "remote.tokens.pushurl", "https://"+canary+"@example.com/repo.git")
	git(t, work, "config", "remote.query.url", "https://example.com/repo.git?private_token="+canary)
	git(t, work, "config", "remote.scp.url", canary+"@example.com:repo.git")
	git(t, work, "config", "remote.ext.url", "ext::sh -c 'echo "+canary+"'")
	git(t, work, "config", "remote.proxied.proxy", "http://u:"+canary+"@proxy.example.com")
	git(t, work, "config", "remote.https://"+canary+"@example.com/r.fetch",
		"+refs/heads/*:refs/remotes/x/*")
	git(t, work, "config", "branch.main.remote", "https://"+canary+"@example.com/repo.git")
	git(t, work, "config", "branch.main.description", canary)
	git(t, work, "config", "url.https://x:"+canary+"@example.com/.insteadOf", "https://example.com/")
	git(t, work, "config", "core.sshCommand", "ssh -i "+canary)
	git(t, work, "config", "core.hooksPath", "/"+canary)
	git(t, work, "config", "core.fsmonitor", "/bin/"+canary)
	git(t, work, "config", "filter.x.clean", canary)
	git(t, work, "config", "alias.x", "!"+canary)
	git(t, work, "config", "gitlab.token", canary)
	git(t, work, "config", "user.signingkey", canary)
	git(t, work, "config", "include.path", filepath.Join(gitDir, "included"))
	put(t, gitDir, tree{
		"included":         text("[user]\n\tname = " + canary + "\n"),
		"hooks/pre-commit": {Content: "#!/bin/sh\n# " + canary + "\n", Executable: true},
		"FETCH_HEAD": text(strings.Repeat("0", 40) + "\t\tbranch 'x' of https://" + canary +
			"@example.com/\n"),
		"logs/HEAD":           text(canary + "\n"),
		"logs/refs/heads/x":   text(canary + "\n"),
		"description":         text(canary),
		"ORIG_HEAD":           text(canary),
		"MERGE_MSG":           text(canary),
		"git-credentials":     text(canary),
		"sourcetree/x":        text(canary),
		"refs/heads/" + "bad": text(canary),
		"branches/x":          text(canary),
		"lfs/cache":           text(canary),
	})
	if f, err := os.OpenFile(filepath.Join(gitDir, "config"), os.O_APPEND|os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	} else {
		fmt.Fprintf(f, "# %s\n[unknown \"%s\"]\n\tkey = %s ; %s\n", canary, canary, canary, canary)
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Upload sends no secret of a git directory.
func TestUploadWithoutSecrets(t *testing.T) {
	t.Parallel()
	needGit(t)
	host := makeSubmodules(t, t.TempDir())
	git(t, host, "pack-refs", "--all")
	linked := filepath.Join(filepath.Dir(host), "linked")
	git(t, host, "worktree", "add", "-q", linked)
	inner := filepath.Join(host, "inner")
	makeRepository(t, inner)
	git(t, inner, "config", "remote.plain.url", "https://u:"+canary+"@example.com/x")
	spoil(t, host, filepath.Join(host, ".git"))
	spoil(t, inner, filepath.Join(inner, ".git"))
	spoil(t, filepath.Join(host, "lib/outer"), filepath.Join(host, ".git/modules/lib/outer"))
	for _, dir := range []string{host, linked} {
		w := open(t, dir, workspace.Options{})
		_, envDir := upload(t, w)
		if _, err := os.Stat(filepath.Join(envDir, ".git/HEAD")); err != nil {
			t.Fatal(err)
		}
		files := 0
		err := filepath.WalkDir(envDir, func(p string, d fs.DirEntry, err error) error {
			if err == nil && strings.Contains(p, canary) {
				t.Errorf("the name %s has the canary", p)
			}
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			files++
			content, err := os.ReadFile(p)
			if bytes.Contains(content, []byte(canary)) {
				t.Errorf("%s has the canary", p)
			}
			return err
		})
		if err != nil || files < 10 {
			t.Errorf("%d files, %v", files, err)
		}
		config, err := os.ReadFile(filepath.Join(envDir, ".git/config"))
		if err != nil || !bytes.Contains(config, []byte("https://example.com/repo.git")) {
			t.Errorf("the configuration lacks the address without the secret: %v\n%s", err,
				config)
		}
	}
}

// spy counts calls and slows down CopyIn.
type spy struct {
	env.Environment
	calls map[string]int
	slow  bool
}

func (s *spy) ReadDir(ctx context.Context, name string) ([]fs.DirEntry, error) {
	s.calls["ReadDir"]++
	return s.Environment.ReadDir(ctx, name)
}

func (s *spy) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	s.calls["Stat"]++
	return s.Environment.Stat(ctx, name)
}

func (s *spy) Lstat(ctx context.Context, name string) (fs.FileInfo, error) {
	s.calls["Lstat"]++
	return s.Environment.Lstat(ctx, name)
}

func (s *spy) ReadLink(ctx context.Context, name string) (string, error) {
	s.calls["ReadLink"]++
	return s.Environment.ReadLink(ctx, name)
}

func (s *spy) Open(ctx context.Context, name string) (fs.File, error) {
	s.calls["Open"]++
	return s.Environment.Open(ctx, name)
}

func (s *spy) CopyIn(ctx context.Context, dir string, r io.Reader) error {
	s.calls["CopyIn"]++
	if s.slow {
		r = struct{ io.Reader }{&trickle{r}}
	}
	return s.Environment.CopyIn(ctx, dir, r)
}

func (s *spy) CopyOut(ctx context.Context, dir string, names ...string) (io.ReadCloser, error) {
	s.calls["CopyOut"]++
	return s.Environment.CopyOut(ctx, dir, names...)
}

func (s *spy) Walk(
	ctx context.Context, root string, o search.WalkOptions, fn func(search.Entry) error,
) error {
	s.calls["Walk"]++
	return search.Walk(ctx, s.Environment, root, o, fn)
}

func (s *spy) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	return search.Glob(ctx, s.Environment, opts)
}

func (s *spy) Grep(
	ctx context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	return search.Grep(ctx, s.Environment, opts, fn)
}

// trickle reads a few bytes at a time.
type trickle struct{ r io.Reader }

func (r *trickle) Read(p []byte) (int, error) { return r.r.Read(p[:min(len(p), 100)]) }

// The number of calls does not depend on the number of files.
func TestCallsDoNotGrowWithFiles(t *testing.T) {
	t.Parallel()
	needGit(t)
	counts := map[int]map[string]int{}
	for _, n := range []int{10, 200} {
		host := t.TempDir()
		git(t, host, "init", "-q")
		files := tree{}
		for i := range n {
			files[fmt.Sprintf("d%d/f%d", i%(1+n/10), i)] = text(fmt.Sprintln(i))
		}
		put(t, host, files)
		commit(t, host, "first")
		w := open(t, host, workspace.Options{})
		e, envDir := newEnvironment(t)
		s := &spy{Environment: e, calls: map[string]int{}}
		if err := w.Upload(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		same(t, "calls of an upload", map[string]int{"ReadDir": 1, "CopyIn": 1}, s.calls)
		edited := tree{}
		for name := range files {
			edited[name] = text("edited\n")
		}
		put(t, envDir, edited)
		c := changes(t, w, s)
		if _, err := c.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		same(t, "on the host", edited, read(t, host))
		counts[n] = s.calls
	}
	same(t, "calls for few and many files", counts[10], counts[200])
}

func TestSlowEnvironment(t *testing.T) {
	dir := t.TempDir()
	want := tree{"big": text(strings.Repeat("content\n", 100_000)), "small": text("s")}
	put(t, dir, want)
	w := open(t, dir, workspace.Options{})
	e, envDir := newEnvironment(t)
	if err := w.Upload(t.Context(), &spy{
		Environment: e, calls: map[string]int{},
		slow: true,
	}); err != nil {
		t.Fatal(err)
	}
	same(t, "in the environment", want, read(t, envDir))
}

// Upload sends the record, not later changes on the host.
func TestUploadIsWhatWasRecorded(t *testing.T) {
	dir := t.TempDir()
	want := tree{"a": text("a"), "b": text("b"), "empty/": {}}
	put(t, dir, want)
	w := open(t, dir, workspace.Options{})
	put(t, dir, tree{"a": text("changed"), "c": text("new")})
	remove(t, dir, "b", "empty")
	e, envDir := upload(t, w)
	same(t, "in the environment", want, read(t, envDir))
	if !changes(t, w, e).Empty() {
		t.Error("unexpected changes")
	}
}

func TestLimits(t *testing.T) {
	needGit(t)
	dir := t.TempDir()
	put(t, dir, tree{"a": text(strings.Repeat("a", 1000)), "d/b": text("b")})
	for _, o := range []workspace.Options{{MaxBytes: 1000}, {MaxEntries: 2}} {
		if _, err := workspace.Open(t.Context(), dir, o); !isTooLarge(err) {
			t.Errorf("%+v: %v, want ErrTreeTooLarge", o, err)
		}
	}
	w := open(t, dir, workspace.Options{MaxBytes: 1500, MaxEntries: 4})
	e, envDir := upload(t, w)
	put(t, envDir, tree{"c": text(strings.Repeat("c", 1000))})
	c := changes(t, w, e)
	same(t, "too large", []string{"c"}, c.Unreadable())
	if _, err := c.Apply(t.Context()); !errors.Is(err, workspace.ErrUnreadable) {
		t.Errorf("%v, want ErrUnreadable", err)
	}
	put(t, envDir, tree{"c": text("c"), "e": text("e")})
	if _, err := w.Changes(t.Context(), e); !isTooLarge(err) {
		t.Errorf("%v, want ErrTreeTooLarge", err)
	}

	repo := t.TempDir()
	makeRepository(t, repo)
	put(t, repo, tree{"random": text(strings.Join(slices.Repeat([]string{"some text\n"}, 100), ""))})
	commit(t, repo, "more")
	w = open(t, repo, workspace.Options{MaxBytes: 1200})
	e, _ = newEnvironment(t)
	if err := w.Upload(t.Context(), e); !isTooLarge(err) {
		t.Errorf("%v, want ErrTreeTooLarge", err)
	}
}

func isTooLarge(err error) bool { return errors.Is(err, env.ErrTreeTooLarge) }
