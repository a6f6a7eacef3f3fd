package agent_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// configIn configures an agent whose environment is dir.
func configIn(t *testing.T, dir string, m llm.Client, tools ...tool.Tool) agent.Config {
	t.Helper()
	e, err := local.New(local.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	cfg := config(m, tools...)
	cfg.Env = e
	cfg.Profile.ProjectDocs = []string{"AGENTS.md"}
	return cfg
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs git")
	}
	cmd := exec.CommandContext(t.Context(), "git", append([]string{
		"-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.com",
	}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// busyEnv has commands that run until their context ends.
type busyEnv struct {
	env.Environment
	started chan struct{}
	running atomic.Int32
}

func (e *busyEnv) Exec(ctx context.Context, _ env.Command) (env.Result, error) {
	e.running.Add(1)
	defer e.running.Add(-1)
	select {
	case e.started <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return env.Result{}, context.Cause(ctx)
}

// TestUnopened has a store that fails while the surroundings are collected. Nothing uses the
// environment after that.
func TestUnopened(t *testing.T) {
	cfg := configIn(t, t.TempDir(), &model{})
	busy := &busyEnv{Environment: cfg.Env, started: make(chan struct{}, 1)}
	full := errors.New("the disk is full")
	cfg.Env, cfg.Store = busy, func(string) (session.Store, error) {
		<-busy.started
		return nil, full
	}
	a, err := agent.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close() //nolint:errcheck // it has no session
	if _, err := a.NewSession(t.Context(), agent.SessionOptions{}); !errors.Is(err, full) {
		t.Errorf("%v, want %v", err, full)
	}
	if n := busy.running.Load(); n != 0 {
		t.Errorf("%d commands run after the failure", n)
	}
}

func TestDocsThroughASymlink(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("symlinks need a privilege on Windows")
	}
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	write(t, filepath.Join(dir, "AGENTS.md"), "rule of the root")
	write(t, filepath.Join(dir, "a", "sub", "AGENTS.md"), "rule of sub")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(filepath.Join(dir, "a"), link); err != nil {
		t.Fatal(err)
	}
	m := &model{}
	s := newSession(t, configIn(t, filepath.Join(link, "sub"), m))
	submit(t, s, "go")
	system := m.request(t, 0).System
	if root, sub := strings.Index(system, "rule of the root"), strings.Index(system,
		"rule of sub"); root < 0 || sub < root {
		t.Errorf("the rules stand at %d and %d", root, sub)
	}
}

// TestGitRunsNoProgramOfTheRepository has a repository whose configuration names programs that git
// status and git log would run.
func TestGitRunsNoProgramOfTheRepository(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the programs are shell scripts")
	}
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "trunk")
	write(t, filepath.Join(dir, ".gitattributes"), "*.txt filter=x\n")
	write(t, filepath.Join(dir, "a.txt"), "a\n")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "the only commit")
	ran := filepath.Join(dir, ".git", "ran")
	program := filepath.Join(dir, ".git", "program")
	write(t, program, "#!/bin/sh\ntouch '"+ran+"'\ncat\n")
	if err := os.Chmod(program, 0o700); err != nil { //nolint:gosec // git must be able to run it
		t.Fatal(err)
	}
	for _, name := range []string{
		"filter.x.clean", "filter.x.smudge", "filter.x.process",
		"core.fsmonitor", "gpg.program", "core.pager", "diff.external",
	} {
		git(t, dir, "config", name, program)
	}
	git(t, dir, "config", "filter.x.required", "true")
	git(t, dir, "config", "log.showSignature", "true")
	write(t, filepath.Join(dir, "a.txt"), "changed\n")
	if err := os.Remove(ran); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	m := &model{}
	s := newSession(t, configIn(t, dir, m))
	submit(t, s, "go")
	if _, err := os.Stat(ran); err == nil {
		t.Error("a program of the repository's configuration ran")
	}
	for _, want := range []string{"Git branch: trunk", "the only commit", "Modified files: 1"} {
		if !strings.Contains(m.request(t, 0).System, want) {
			t.Errorf("the system prompt lacks %q", want)
		}
	}
}

// TestSystemPromptStaysTheSame changes the files, the branch and the date between two inputs.
func TestSystemPromptStaysTheSame(t *testing.T) {
	dir := t.TempDir()
	git(t, dir, "init", "-q", "-b", "trunk")
	write(t, filepath.Join(dir, "AGENTS.md"), "the first rule")
	m := &model{}
	cfg := configIn(t, dir, m)
	now := time.Date(2026, 5, 6, 23, 0, 0, 0, time.UTC)
	cfg.Clock = &movable{&now}
	s := newSession(t, cfg)
	for range 2 {
		submit(t, s, "go")
		write(t, filepath.Join(dir, "AGENTS.md"), "another rule")
		write(t, filepath.Join(dir, "new"), "")
		git(t, dir, "checkout", "-q", "--orphan", "other")
		now = now.Add(24 * time.Hour)
	}
	if diff := cmp.Diff(m.request(t, 0).System, m.request(t, 1).System); diff != "" {
		t.Errorf("the system prompt changed:\n%s", diff)
	}
	if !strings.Contains(m.request(t, 0).System, "2026-05-06") {
		t.Error("the date is not that of the session's clock")
	}
}

type movable struct{ now *time.Time }

func (m *movable) Now() time.Time { return *m.now }

func (m *movable) Sleep(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) }

func TestVerify(t *testing.T) {
	exit := call("a", "exit", object{"code": 0, "reason": "all done"})
	tests := []struct {
		name    string
		command string
		answers []answer
		status  agent.Status
		sent    int
		checks  int
	}{
		{"passes", "true", []answer{{text: "done"}}, agent.StatusCompleted, 1, 1},
		{
			"passes later", "test -f made",
			[]answer{{text: "done"}, {text: "now it is", before: nil}},
			agent.StatusCompleted, 2, 2,
		},
		{"never passes", "echo why; exit 3", nil, agent.StatusVerifyFailed, 3, 3},
		{"an exit is checked too", "false", []answer{calls(exit)}, agent.StatusVerifyFailed, 3, 3},
		{"takes too long", "sleep 300", nil, agent.StatusVerifyFailed, 3, 3},
		{"has too many processes", "sleep 300 & wait", nil, agent.StatusVerifyFailed, 3, 3},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			m := &model{answers: tt.answers}
			if tt.name == "passes later" {
				m.answers[1].before = func(context.Context, llm.Request) {
					write(t, filepath.Join(dir, "made"), "")
				}
			}
			cfg := configIn(t, dir, m, tool.ExitTool())
			cfg.Verify = agent.Verify{Command: tt.command, Timeout: 10 * time.Second}
			if tt.name == "takes too long" {
				cfg.Verify.Timeout = 50 * time.Millisecond
			}
			if tt.name == "has too many processes" {
				cfg.Limits.MaxProcesses, cfg.Verify.Timeout = 1, time.Minute
			}
			ev := watch(&cfg)
			s := newSession(t, cfg)
			res, err := s.Submit(t.Context(), "go")
			if res.Status != tt.status || res.ModelCalls != tt.sent ||
				ev.count(event.KindVerify) != tt.checks ||
				(err == nil) != (tt.status == agent.StatusCompleted) {
				t.Errorf("ended with %s after %d model calls and %d checks, %v", res.Status, res.ModelCalls,
					ev.count(event.KindVerify), err)
			}
			if tt.status == agent.StatusVerifyFailed && res.Exit != nil {
				t.Errorf("a rejected exit is in the result: %+v", res.Exit)
			}
			if tt.name == "never passes" {
				msgs := m.request(t, 1).Messages
				if message := msgs[len(msgs)-1].Text(); !strings.Contains(message, "why") ||
					!strings.Contains(message, "exit code 3") {
					t.Errorf("the model got %q", message)
				}
			}
			checkPairs(t, s.History())
		})
	}
}

func TestSteeringDuringTheCheck(t *testing.T) {
	m := &model{}
	var s *agent.Session
	cfg := configIn(t, t.TempDir(), m)
	cfg.Verify = agent.Verify{Command: "true"}
	steered := false
	cfg.Sinks = append(cfg.Sinks, func(e event.Event) error {
		if e.Kind() == event.KindVerify && !steered {
			steered = true
			return s.Steer("one more thing")
		}
		return nil
	})
	s = newSession(t, cfg)
	res, err := s.Submit(t.Context(), "go")
	if err != nil || res.ModelCalls != 2 {
		t.Fatalf("%d requests, %v", res.ModelCalls, err)
	}
	msgs := m.request(t, 1).Messages
	if got := msgs[len(msgs)-1].Text(); got != "one more thing" {
		t.Errorf("the model got %q", got)
	}
}

func TestGitBranch(t *testing.T) {
	dir := t.TempDir()
	branch := func() string {
		t.Helper()
		m := &model{}
		submit(t, newSession(t, configIn(t, dir, m)), "go")
		_, rest, _ := strings.Cut(m.request(t, 0).System, "Git branch: ")
		name, _, _ := strings.Cut(rest, "\n")
		return name
	}
	if got := branch(); got != "" {
		t.Errorf("branch %q without a repository", got)
	}
	git(t, dir, "init", "-q", "-b", "trunk")
	if got := branch(); got != "trunk" {
		t.Errorf("branch %q before the first commit", got)
	}
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "x")
	if got := branch(); got != "trunk" {
		t.Errorf("branch %q", got)
	}
	git(t, dir, "checkout", "-q", "--detach")
	if got := branch(); got != "none (detached HEAD)" {
		t.Errorf("branch %q of a detached HEAD", got)
	}
}
