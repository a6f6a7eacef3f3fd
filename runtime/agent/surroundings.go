package agent

import (
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

const (
	// docsLimit bounds the project's instructions in the system prompt, in bytes.
	docsLimit = 32 << 10
	// gitTimeout bounds each git command; the result of a slower one is missing.
	gitTimeout = 5 * time.Second
	// gitCommits is the number of commits in the system prompt.
	gitCommits = "8"
)

// collectSurroundings reads the environment section of the system prompt through e, which may be
// nil. A part that cannot be read is missing.
func collectSurroundings(
	ctx context.Context, e env.Environment, p profile.Profile, model string, now time.Time,
) profile.Surroundings {
	s := profile.Surroundings{
		Date: now.Format(time.DateOnly), Model: model, KnowledgeCutoff: p.KnowledgeCutoff,
	}
	if e == nil {
		return s
	}
	info := e.Info()
	s.WorkDir, s.Platform, s.OSVersion = info.WorkDir, info.OS, info.OSVersion
	git, dirs := readGit(ctx, e)
	if git == nil {
		dirs = []string{info.WorkDir}
	} else {
		git.ReadOnly = info.Strength(env.KeptHooks) == env.Enforced
	}
	s.Git = git
	s.Docs = readDocs(ctx, e, dirs, p.ProjectDocs, docsLimit)
	return s
}

// gitArgs keep git from taking locks and from running most programs that a repository's
// configuration names; see also quietFilters.
var gitArgs = []string{
	"git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c",
	"log.showSignature=false",
}

// runGit runs git and returns its output, cut to 1 MiB; ok reports that git succeeded.
func runGit(ctx context.Context, e env.Runner, args ...string) (out string, cut, ok bool) {
	const limit = 1 << 20
	c, res, err := env.Output(ctx, e, env.Command{
		Argv:    slices.Concat(gitArgs, args),
		Vars:    []string{"GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "LC_ALL=C"},
		Timeout: gitTimeout,
	}, env.OutputOptions{Stdout: env.CaptureOptions{Head: limit, Tail: 1}})
	if err != nil || res.TimedOut {
		return "", false, false
	}
	return strings.ToValidUTF8(string(c.Stdout.Head()), "\uFFFD"), c.Stdout.Size() > limit,
		res.ExitCode == 0
}

// readGit returns nil outside a work tree, and otherwise its state and the directories from its
// root down to the working directory, by the names that git has for them, which contain no symlink.
func readGit(ctx context.Context, e env.Environment) (*profile.Git, []string) {
	var g profile.Git
	var prefix string
	var wg sync.WaitGroup
	wg.Go(func() {
		// It fails on a branch without commits, after it has printed "HEAD".
		out, _, born := runGit(ctx, e, "rev-parse", "--show-toplevel", "--show-prefix",
			"--abbrev-ref", "HEAD")
		root, rest, _ := strings.Cut(out, "\n")
		rest = strings.TrimRight(rest, "\r\n")
		end := strings.LastIndex(rest, "\n")
		if end < 0 {
			return
		}
		g.Root, prefix = strings.TrimSuffix(root, "\r"), strings.TrimRight(rest[:end], "\r")
		g.Branch = rest[end+1:]
		if !born {
			out, _, _ := runGit(ctx, e, "symbolic-ref", "--short", "-q", "HEAD")
			g.Branch = strings.TrimSpace(out)
		} else if g.Branch == "HEAD" { // detached
			g.Branch = ""
		}
	})
	wg.Go(func() {
		quiet, ok := quietFilters(ctx, e)
		if !ok {
			return
		}
		if out, cut, ok := runGit(ctx, e, append(quiet, "status", "--porcelain=v2")...); ok {
			g.Status = parseStatus(out)
			g.Status.More = cut
		}
	})
	wg.Go(func() {
		if log, _, ok := runGit(ctx, e, "log", "-n", gitCommits, "--format=%h %s"); ok {
			g.Commits = splitLines(log)
		}
	})
	wg.Wait()
	if g.Root == "" {
		return nil, nil
	}
	dirs := []string{g.Root}
	for name := range strings.SplitSeq(strings.Trim(prefix, "/"), "/") {
		if name != "" {
			dirs = append(dirs, path.Join(dirs[len(dirs)-1], name))
		}
	}
	return &g, dirs
}

// quietFilters returns arguments that disable the filters in a repository's configuration, which
// git status would run on file contents. It reports whether all of them can be disabled.
func quietFilters(ctx context.Context, e env.Runner) ([]string, bool) {
	out, cut, _ := runGit(ctx, e, "config", "--name-only", "--get-regexp",
		`^filter\..*\.(clean|smudge|process|required)$`)
	var args []string
	for _, name := range splitLines(out) {
		if strings.Contains(name, "=") { // the argument would set another name
			return nil, false
		}
		value := ""
		if strings.HasSuffix(name, ".required") {
			value = "false"
		}
		args = append(args, "-c", name+"="+value)
	}
	return args, !cut
}

// parseStatus reads the output of git status --porcelain=v2.
func parseStatus(out string) *profile.GitStatus {
	var s profile.GitStatus
	for _, line := range splitLines(out) {
		switch {
		case strings.HasPrefix(line, "? "):
			s.Untracked++
		case strings.HasPrefix(line, "1 "), strings.HasPrefix(line, "2 "), strings.HasPrefix(line, "u "):
			s.Modified++
		}
	}
	return &s
}

func splitLines(s string) []string {
	s = strings.TrimRight(s, "\n")
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

// addDocs adds to s the project's instructions in the directories below s.WorkDir down to dir,
// which is that of a sub-agent.
func addDocs(
	ctx context.Context, e env.FileReader, s profile.Surroundings, names []string, dir string,
) []profile.Doc {
	rel, ok := strings.CutPrefix(dir, strings.TrimSuffix(s.WorkDir, "/")+"/")
	if !ok {
		return s.Docs
	}
	left := docsLimit
	for _, d := range s.Docs {
		left -= len(d.Text)
	}
	var dirs []string
	at := s.WorkDir
	for name := range strings.SplitSeq(rel, "/") {
		at = path.Join(at, name)
		dirs = append(dirs, at)
	}
	return slices.Concat(s.Docs, readDocs(ctx, e, dirs, names, left))
}

// readDocs reads the project's instructions in dirs, in this order, at most left bytes in all.
func readDocs(ctx context.Context, e env.FileReader, dirs, names []string, left int) []profile.Doc {
	if left <= 0 {
		return nil
	}
	var files []string
	for _, dir := range dirs {
		for _, name := range names {
			files = append(files, path.Join(dir, name))
		}
	}
	contents, err := env.ReadFiles(ctx, e, files, docsLimit)
	if err != nil {
		return nil
	}
	var docs []profile.Doc
	for _, c := range contents {
		b, err := c.Data, c.Err
		if errors.Is(err, env.ErrTooLarge) {
			b, err = readUpTo(ctx, e, c.Name, left)
		}
		if err != nil || len(strings.TrimSpace(string(b))) == 0 {
			continue
		}
		text := strings.ToValidUTF8(string(b), "\uFFFD")
		cut := len(b) > left
		if cut {
			text = strings.ToValidUTF8(string(b[:left]), "") + "\n" + tool.DocsCutText(docsLimit)
		}
		docs = append(docs, profile.Doc{Path: c.Name, Text: text})
		if left -= len(b); cut || left <= 0 {
			break
		}
	}
	return docs
}

// readUpTo reads at most limit+1 bytes, so that the caller can detect a longer file.
func readUpTo(ctx context.Context, e env.FileReader, name string, limit int) ([]byte, error) {
	f, err := e.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	return io.ReadAll(io.LimitReader(f, int64(limit)+1))
}
