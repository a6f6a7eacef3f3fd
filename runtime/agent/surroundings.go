package agent

import (
	"context"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

const (
	// gitTimeout bounds each git command; the result of a slower one is missing.
	gitTimeout = 5 * time.Second
	// gitCommits is the number of commits in the system prompt.
	gitCommits = "8"
)

// collection collects the surroundings of a new session while it is opened.
type collection struct {
	cancel context.CancelFunc
	done   chan struct{}
	// surroundings and skipped are valid after done.
	surroundings profile.Surroundings
	skipped      []string
}

// startCollection returns nil if the session has its surroundings from elsewhere.
func startCollection(ctx context.Context, cfg *Config, from lineage) *collection {
	if from.surroundings != nil || from.record != nil && len(from.record.Surroundings) > 0 {
		return nil
	}
	c := &collection{done: make(chan struct{})}
	ctx, c.cancel = context.WithCancel(ctx)
	go func() {
		defer close(c.done)
		c.surroundings, c.skipped = collectSurroundings(ctx, cfg.Env, cfg.Profile, cfg.Settings.Model,
			cfg.Clock.Now())
	}()
	return c
}

// stop waits for the end, so that nothing uses the environment any more.
func (c *collection) stop() {
	if c != nil {
		c.cancel()
		<-c.done
	}
}

// collectSurroundings reads the environment section of the system prompt through e, which may be
// nil. A part that cannot be read is missing; skipped has a line for each file with instructions
// that was refused.
func collectSurroundings(
	ctx context.Context, e env.Environment, p profile.Profile, model string, now time.Time,
) (s profile.Surroundings, skipped []string) {
	s = profile.Surroundings{
		Date: now.Format(time.DateOnly), Model: model, KnowledgeCutoff: p.KnowledgeCutoff,
	}
	if e == nil {
		return s, nil
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
	dirs = projectDirs(ctx, e, dirs)
	s.Docs, skipped = readDocs(ctx, e, dirs[0], dirs, p.ProjectDocs, docsLimit)
	return s, skipped
}

// gitArgs keep git from taking locks and, with gitVars and quietFilters, from running programs that
// the configuration of a repository names. The empty core.fsmonitor disables it in every version of
// git. Git status has --ignore-submodules=dirty too, since it runs git in submodules otherwise,
// which have settings of their own.
var gitArgs = []string{
	"git", "--no-optional-locks", "--no-pager", "-c", "core.fsmonitor=", "-c",
	"core.hooksPath=/dev/null", "-c", "log.showSignature=false",
}

// gitVars keep git from fetching missing objects, which runs programs of the configuration: older
// versions do not know GIT_NO_LAZY_FETCH, but allow only the protocols of GIT_ALLOW_PROTOCOL.
var gitVars = []string{
	"GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none", "LC_ALL=C",
}

// runGit runs git and returns its output, cut to 1 MiB; ok reports that git succeeded.
func runGit(ctx context.Context, e env.Runner, args ...string) (out string, cut, ok bool) {
	const limit = 1 << 20
	c, res, err := env.Output(ctx, e, env.Command{
		Argv:    slices.Concat(gitArgs, args),
		Vars:    gitVars,
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
	var filters []string
	var quiet bool
	var wg sync.WaitGroup
	wg.Go(func() { prefix = readRoot(ctx, e, &g) })
	wg.Go(func() { filters, quiet = quietFilters(ctx, e) })
	wg.Wait()
	if g.Root == "" {
		return nil, nil
	}
	wg.Go(func() {
		if !quiet {
			return
		}
		if out, cut, ok := runGit(ctx, e, append(filters, "status", "--porcelain=v2",
			"--ignore-submodules=dirty")...); ok {
			g.Status = parseStatus(out)
			g.Status.More = cut
		}
	})
	wg.Go(func() {
		if log, _, ok := runGit(ctx, e, "log", "-n", gitCommits, "--pretty=tformat:%h %s"); ok {
			g.Commits = splitLines(log)
		}
	})
	wg.Wait()
	dirs := []string{g.Root}
	for name := range strings.SplitSeq(strings.Trim(prefix, "/"), "/") {
		if name != "" {
			dirs = append(dirs, path.Join(dirs[len(dirs)-1], name))
		}
	}
	return &g, dirs
}

// readRoot sets the root and the branch, unless the working directory is outside a work tree, and
// returns the path from the root to the working directory.
func readRoot(ctx context.Context, e env.Environment, g *profile.Git) (prefix string) {
	// It fails on a branch without commits, after it has printed "HEAD".
	out, _, born := runGit(ctx, e, "rev-parse", "--is-inside-work-tree", "--show-toplevel",
		"--show-prefix", "--abbrev-ref", "HEAD")
	is, out, _ := strings.Cut(out, "\n")
	if strings.TrimRight(is, "\r") != "true" {
		return "" // A setting can name a working tree elsewhere.
	}
	root, rest, _ := strings.Cut(out, "\n")
	rest = strings.TrimRight(rest, "\r\n")
	end := strings.LastIndex(rest, "\n")
	if end < 0 {
		return ""
	}
	g.Root, g.Branch = strings.TrimSuffix(root, "\r"), rest[end+1:]
	if !born {
		out, _, _ := runGit(ctx, e, "symbolic-ref", "--short", "-q", "HEAD")
		g.Branch = strings.TrimSpace(out)
	} else if g.Branch == "HEAD" { // detached
		g.Branch = ""
	}
	return strings.TrimRight(rest[:end], "\r")
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
