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
	// docsLimit is how much of the project's instructions a model is told, in bytes.
	docsLimit = 32 << 10
	// gitTimeout bounds each look at the repository; what takes longer is left out.
	gitTimeout = 5 * time.Second
	// gitCommits is how many commits a model is told.
	gitCommits = "8"
)

// lookAround takes what a model is told about the place it works in. What cannot be found out is
// left out. Everything is read through the environment.
func lookAround(ctx context.Context, cfg *Config, model string) profile.Surroundings {
	s := profile.Surroundings{
		Date: cfg.Clock.Now().Format(time.DateOnly), Model: model,
		KnowledgeCutoff: cfg.Profile.KnowledgeCutoff,
	}
	if cfg.Env == nil {
		return s
	}
	info := cfg.Env.Info()
	s.WorkDir, s.Platform, s.OSVersion = info.WorkDir, info.OS, info.OSVersion
	git, folders := lookAtGit(ctx, cfg.Env)
	if git == nil {
		folders = []string{info.WorkDir}
	}
	s.Git = git
	s.Docs = readDocs(ctx, cfg.Env, folders, cfg.Profile.ProjectDocs, docsLimit)
	return s
}

// gitArgs keep git from taking locks and from running most of what a repository's configuration
// names; see also quietFilters.
var gitArgs = []string{
	"git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c",
	"log.showSignature=false",
}

// git runs git and returns the start of its output. More says that it is not all.
func git(ctx context.Context, e env.Runner, args ...string) (out string, more, ok bool) {
	const keep = 1 << 20
	c, res, err := env.Output(ctx, e, env.Command{
		Argv:    slices.Concat(gitArgs, args),
		Vars:    []string{"GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "LC_ALL=C"},
		Timeout: gitTimeout,
	}, env.OutputOptions{Stdout: env.CaptureOptions{Head: keep, Tail: 1}})
	if err != nil || res.ExitCode != 0 || res.TimedOut {
		return "", false, false
	}
	return strings.ToValidUTF8(string(c.Stdout.Head()), "\uFFFD"), c.Stdout.Size() > keep, true
}

// lookAtGit returns nil outside a work tree, and otherwise its state and the folders from its root
// down to the working directory, by the names that git has for them, which lead through no link.
func lookAtGit(ctx context.Context, e env.Environment) (*profile.Git, []string) {
	var g profile.Git
	var prefix string
	var wg sync.WaitGroup
	wg.Go(func() {
		out, _, ok := git(ctx, e, "rev-parse", "--show-toplevel", "--show-prefix")
		if lines := strings.SplitN(out, "\n", 2); ok && len(lines) == 2 {
			g.Root, prefix = strings.TrimSuffix(lines[0], "\r"), strings.TrimRight(lines[1], "\r\n")
		}
	})
	wg.Go(func() {
		out, _, _ := git(ctx, e, "symbolic-ref", "--short", "-q", "HEAD")
		g.Branch = strings.TrimSpace(out)
	})
	wg.Go(func() {
		quiet, ok := quietFilters(ctx, e)
		if !ok {
			return
		}
		if out, more, ok := git(ctx, e, append(quiet, "status", "--porcelain=v2")...); ok {
			g.Status = parseStatus(out)
			g.Status.More = more
		}
	})
	wg.Go(func() {
		if log, _, ok := git(ctx, e, "log", "-n", gitCommits, "--format=%h %s"); ok {
			g.Commits = splitLines(log)
		}
	})
	wg.Wait()
	if g.Root == "" {
		return nil, nil
	}
	folders := []string{g.Root}
	for name := range strings.SplitSeq(strings.Trim(prefix, "/"), "/") {
		if name != "" {
			folders = append(folders, path.Join(folders[len(folders)-1], name))
		}
	}
	return &g, folders
}

// quietFilters are arguments that turn off the programs which a repository's configuration names
// for the content of files, and which git status would run. It reports whether all of them can be
// turned off.
func quietFilters(ctx context.Context, e env.Runner) ([]string, bool) {
	out, more, _ := git(ctx, e, "config", "--name-only", "--get-regexp",
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
	return args, !more
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

// docsBelow adds the project's instructions in the folders between that of s and dir, which is that
// of a sub-agent.
func docsBelow(ctx context.Context, cfg *Config, s profile.Surroundings, dir string) []profile.Doc {
	rel, ok := strings.CutPrefix(dir, strings.TrimSuffix(s.WorkDir, "/")+"/")
	if !ok {
		return s.Docs
	}
	left := docsLimit
	for _, d := range s.Docs {
		left -= len(d.Text)
	}
	var folders []string
	at := s.WorkDir
	for name := range strings.SplitSeq(rel, "/") {
		at = path.Join(at, name)
		folders = append(folders, at)
	}
	return slices.Concat(s.Docs, readDocs(ctx, cfg.Env, folders, cfg.Profile.ProjectDocs, left))
}

// readDocs reads the project's instructions in folders, in this order, at most left bytes in all.
func readDocs(
	ctx context.Context, e env.FileReader, folders, names []string, left int,
) []profile.Doc {
	if left <= 0 {
		return nil
	}
	var files []string
	for _, folder := range folders {
		for _, name := range names {
			files = append(files, path.Join(folder, name))
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
			text = strings.ToValidUTF8(string(b[:left]), "") + "\n" + tool.DocsCutNote(docsLimit)
		}
		docs = append(docs, profile.Doc{Path: c.Name, Text: text})
		if left -= len(b); cut || left <= 0 {
			break
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
