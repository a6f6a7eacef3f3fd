package agent

import (
	"context"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

const (
	// docsLimit is how much of the project's instructions a model is told, in bytes.
	docsLimit = 32 << 10
	// gitTimeout bounds each look at the repository; what takes longer is left out.
	gitTimeout = 5 * time.Second
	// gitCommits is how many commits a model is told.
	gitCommits = "8"
)

// lookAround takes what a model is told about the place it works in. What cannot be found out is left out. Everything is
// read through the environment.
func lookAround(ctx context.Context, cfg *Config, model string) profile.Surroundings {
	s := profile.Surroundings{
		Date: cfg.Clock.Now().Format(time.DateOnly), Model: model, KnowledgeCutoff: cfg.Profile.KnowledgeCutoff,
	}
	if cfg.Env == nil {
		return s
	}
	info := cfg.Env.Info()
	s.WorkDir, s.Platform, s.OSVersion = info.WorkDir, info.OS, info.OSVersion
	s.Git = lookAtGit(ctx, cfg.Env)
	root := info.WorkDir
	if s.Git != nil {
		root = s.Git.Root
	}
	s.Docs = readDocs(ctx, cfg.Env, root, info.WorkDir, cfg.Profile.ProjectDocs)
	return s
}

// gitArgs keep git from running what a repository's configuration names, and from taking locks.
var gitArgs = []string{"git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"}

func git(ctx context.Context, e env.Runner, args ...string) (string, bool) {
	out, res, err := env.Output(ctx, e, env.Command{
		Argv:    append(append([]string{}, gitArgs...), args...),
		Vars:    []string{"GIT_TERMINAL_PROMPT=0", "LC_ALL=C"},
		Timeout: gitTimeout,
	}, env.OutputOptions{Stdout: env.CaptureOptions{Head: 1 << 20, Tail: 1}})
	if err != nil || res.ExitCode != 0 || res.TimedOut {
		return "", false
	}
	return strings.ToValidUTF8(string(out.Stdout.Head()), "\uFFFD"), true
}

func lookAtGit(ctx context.Context, e env.Environment) *profile.Git {
	var g profile.Git
	var inRepository bool
	var wg sync.WaitGroup
	wg.Go(func() {
		var root string
		root, inRepository = git(ctx, e, "rev-parse", "--show-toplevel")
		g.Root = strings.TrimRight(root, "\r\n")
	})
	wg.Go(func() {
		status, _ := git(ctx, e, "status", "--porcelain=v2", "--branch")
		g.Branch, g.Modified, g.Untracked = parseStatus(status)
	})
	wg.Go(func() {
		if log, ok := git(ctx, e, "log", "-n", gitCommits, "--format=%h %s"); ok {
			g.Commits = splitLines(log)
		}
	})
	wg.Wait()
	if !inRepository || g.Root == "" {
		return nil
	}
	return &g
}

// parseStatus reads the output of git status --porcelain=v2 --branch.
func parseStatus(out string) (branch string, modified, untracked int) {
	for _, line := range splitLines(out) {
		switch {
		case strings.HasPrefix(line, "# branch.head "):
			branch = strings.TrimPrefix(line, "# branch.head ")
		case strings.HasPrefix(line, "? "):
			untracked++
		case strings.HasPrefix(line, "1 "), strings.HasPrefix(line, "2 "), strings.HasPrefix(line, "u "):
			modified++
		}
	}
	return branch, modified, untracked
}

func splitLines(s string) []string {
	s = strings.TrimRight(s, "\n")
	if s == "" {
		return nil
	}
	return strings.Split(s, "\n")
}

// readDocs reads the project's instructions from root down to dir, at most docsLimit bytes in all.
func readDocs(ctx context.Context, e env.FileReader, root, dir string, names []string) []profile.Doc {
	var docs []profile.Doc
	left := docsLimit
	for _, folder := range foldersBetween(root, dir) {
		for _, name := range names {
			file := path.Join(folder, name)
			b, err := readUpTo(ctx, e, file, left)
			if err != nil || len(strings.TrimSpace(string(b))) == 0 {
				continue
			}
			text := strings.ToValidUTF8(string(b), "\uFFFD")
			cut := len(b) > left
			if cut {
				text = strings.ToValidUTF8(string(b[:left]), "") + "\n" + tool.DocsCutNote(docsLimit)
			}
			docs = append(docs, profile.Doc{Path: file, Text: text})
			if left -= len(b); cut || left <= 0 {
				return docs
			}
		}
	}
	return docs
}

// readUpTo reads at most limit+1 bytes, so that the caller sees whether there are more.
func readUpTo(ctx context.Context, e env.FileReader, name string, limit int) ([]byte, error) {
	f, err := e.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	return io.ReadAll(io.LimitReader(f, int64(limit)+1))
}

// foldersBetween lists the folders from root down to dir, both included. If dir is not below root, it is dir alone.
func foldersBetween(root, dir string) []string {
	root, dir = path.Clean(root), path.Clean(dir)
	if root != dir && !strings.HasPrefix(dir, strings.TrimSuffix(root, "/")+"/") {
		return []string{dir}
	}
	folders := []string{dir}
	for dir != root {
		dir = path.Dir(dir)
		folders = append([]string{dir}, folders...)
	}
	return folders
}
