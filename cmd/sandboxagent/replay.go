package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/recording"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// replayPrefix is the start of the value of --model that names a recorded session.
const replayPrefix = "replay:"

// Values of --tools.
const (
	toolsName     = "tools"
	toolsLive     = "live"
	toolsRecorded = "recorded"
)

func toolsFlag() cli.Flag {
	return &cli.StringFlag{
		Name: toolsName, Category: groupModel, DefaultText: toolsLive,
		Usage: "with --model replay:SESSION: `WHICH` is live, or recorded, which takes the results " +
			"of tools from the session and runs nothing",
	}
}

// replaying is the replay of a recorded session.
type replaying struct {
	recorded *recording.Session
	// tools means that the results of tools are recorded, too.
	tools bool
	// all means that all runs are played.
	all bool
	// failed is the difference that ended the replay, and played means that it came to its end.
	failed error
	played bool
	// live is the client of a replay with live tools.
	live *recording.Client
}

// playsTools reports whether nothing runs; r may be nil.
func (r *replaying) playsTools() bool { return r != nil && r.tools }

// replayFlags are the recorded flags that count for a replay with recorded tools, and shownFlags
// those that it has beside them. The journal has the effect of the others.
var (
	replayFlags = [...]string{
		"agents", "models", "policy", "deny", "ask", "allow", "mode", "redact", "read-only",
		"final-answer", "planner", "agent",
	}
	shownFlags = [...]string{"model", toolsName, "output", "quiet", "verbose"}
)

// unreplayedFlags are recorded flags that do not count for a replay with live tools: those about
// the model, or about files and environments of that time.
var unreplayedFlags = [...]string{
	"model", "base-url", toolsName, "workdir", "env-id", "keep", "apply", "upload", "download", "log",
	"title", providerOptionName,
}

// openReplay opens the session that --model names for a replay, and adds its flags.
func (p *program) openReplay(app *cli.App) error {
	l := &p.line
	name, replays := strings.CutPrefix(l.value("model"), replayPrefix)
	which := l.value(toolsName)
	switch {
	case !runsTask(l.command) || !replays && which == "":
		return nil
	case !replays:
		return usagef("--%s has no effect without --model %sSESSION", toolsName, replayPrefix)
	case which != "" && which != toolsLive && which != toolsRecorded:
		return usagef("--%s: %q is not one of %s, %s", toolsName, which, toolsLive, toolsRecorded)
	case l.command != runName || l.value(sessionName) != "":
		return usagef("--model %s%s starts a new session; a session does not go on with it",
			replayPrefix, name)
	}
	dir, err := findRecording(name)
	if err != nil {
		return err
	}
	s, err := recording.Open(dir)
	if err != nil {
		return usagef("--model %s%s: %s", replayPrefix, name, err)
	}
	r := &replaying{recorded: s, tools: which == toolsRecorded}
	if p.replay != nil {
		r.all = p.replay.all
	}
	p.replay = r
	if r.tools && s.Environment() == nil {
		return usagef("--%s: the session had no environment, so this program did not record it",
			toolsName)
	}
	return p.addRecordedFlags(app, s.Runs[0].In)
}

// addRecordedFlags adds the flags of a recorded session to the command line.
func (p *program) addRecordedFlags(app *cli.App, in session.Started) error {
	l := &p.line
	var before programLine
	if len(in.Program) > 0 {
		if err := json.Unmarshal(in.Program, &before); err != nil {
			return usagef("the session was recorded by another program, or another version: %s", err)
		}
	}
	given := l.given()
	for _, name := range given {
		counts := slices.Contains(replayFlags[:], name) || slices.Contains(shownFlags[:], name)
		if name == "file" || name == "image-file" || p.replay.tools && !counts {
			return usagef("--%s has no effect on a replay: its effect is recorded", name)
		}
	}
	if p.replay.tools { // the variables and files of today had no effect on the recording
		l.flags = slices.DeleteFunc(l.flags, func(f string) bool {
			name := flagName(f)
			drop := !slices.Contains(given, name) && !slices.Contains(shownFlags[:], name)
			if drop {
				delete(l.sources, "--"+name)
			}
			return drop
		})
		if len(before.Rules) > 0 {
			l.rules = &policy.Policy{Rules: before.Rules}
		}
	}
	own := p.replay.isOwn()
	if !own && !p.replay.tools && len(before.Flags) > 0 {
		p.printNote("the flags of a session outside of your sessions do not count")
	}
	before.Flags = slices.DeleteFunc(before.Flags, func(f string) bool {
		name := flagName(f)
		if p.replay.tools {
			return !slices.Contains(replayFlags[:], name)
		}
		return !own || slices.Contains(unreplayedFlags[:], name) || slices.Contains(ownFlags[:], name)
	})
	if dropped := l.merge(before, given, app.Command(l.command).Flags); len(dropped) > 0 {
		p.printNote("flags of the session without effect here: " + strings.Join(dropped, " "))
	}
	return nil
}

// isOwn reports whether the recording is one of the user's sessions, whose flags are the user's.
func (r *replaying) isOwn() bool {
	dir, err := sessionsDir()
	if err != nil {
		return false
	}
	at, err := filepath.EvalSymlinks(filepath.Dir(r.recorded.Dir))
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	return err == nil && at == dir
}

// findRecording returns the directory of a session, which is its ID or a directory.
func findRecording(name string) (string, error) {
	if isSession(name) {
		return name, nil
	}
	return findSession(name)
}

// isSession reports whether a directory has a journal.
func isSession(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, session.JournalName))
	return err == nil
}

// openModel returns the model of the recording, without a client.
func (r *replaying) openModel(c *cli.Context) (model, error) {
	table, _, err := modelTable(c.String("models"))
	if err != nil {
		return model{}, err
	}
	name, _ := r.recorded.Model(0)
	described, err := profile.New(r.recorded.Started.Profile, name, table)
	return model{profile: described}, err
}

// task returns the arguments of a replay: the recorded task, if args have none.
func (r *replaying) task(args []string) []string {
	if r == nil || len(args) > 0 {
		return args
	}
	return []string{r.recorded.Input(0).Text}
}

// run runs the first input of the recording in a new session, with the text of in.
func (r *replaying) run(
	ctx context.Context, a *agent.Agent, in agent.Input,
) (agent.RunResult, error) {
	s, err := a.NewSession(ctx, agent.SessionOptions{Surroundings: r.recorded.Surroundings()})
	if err != nil {
		return agent.RunResult{}, err
	}
	recorded := r.recorded.Input(0)
	recorded.Text = in.Text
	res, err := s.Run(ctx, recorded)                           // the agent closes it
	if miss := r.live.Err(); miss != nil && ctx.Err() == nil { // also one of a report or a sub-agent
		res.Status, err = agent.StatusModelError, miss
	}
	return res, err
}

// play plays the recording with its results of tools.
func (r *replaying) play(ctx context.Context, j *job) (agent.RunResult, error) {
	o := recording.PlayOptions{Task: j.task, Runs: 1}
	if r.all {
		o = recording.PlayOptions{}
	}
	res, err := r.recorded.NewPlayer().Play(ctx, j.config, o)
	r.played = err == nil
	if err == nil {
		return res, res.Err
	}
	r.failed = err
	res.Status = statusOf(ctx, err, agent.StatusModelError)
	return res, err
}

// prepareReplay is prepare for a replay that runs nothing.
func (p *program) prepareReplay(ctx context.Context, c *cli.Context) (*job, error) {
	p.quiet = c.Bool("quiet")
	var s runSettings
	if err := p.readTask(ctx, c, &s); err != nil {
		return nil, err
	}
	m, kinds, err := p.openModels(c, agent.Limits{})
	if err != nil {
		return nil, err
	}
	guard, err := p.parseGuardFlags(c, nil)
	if err != nil {
		return nil, err
	}
	rules, err := p.tightened(guard.rules)
	if err != nil {
		return nil, err
	}
	plain := p.replay.recorded.Environment()
	j := &job{
		task: s.task, replay: p.replay,
		env: &environment{
			opened:  opened{plain: plain, kill: func() {}, isolated: true},
			backend: plain.Info().Backend, wrapped: plain, inPlace: true, notify: p.notify,
			log: slog.New(slog.DiscardHandler), applying: &p.applying, endTime: p.endTime(),
		},
		config: agent.Config{
			Profile: m.profile, Tools: p.tools, Rules: rules, Redactor: guard.redactor,
			Modes: guard.modes, Subagents: agent.Subagents{Kinds: kinds},
			FinalAnswer: c.Bool("final-answer"), Planner: c.Bool("planner"),
			Log: slog.New(slog.DiscardHandler),
		},
	}
	if c.Bool("verbose") {
		j.outputs = verboseLines
	}
	if c.Bool("read-only") {
		j.config.Policy.Allow = readOnlyTools(slices.Concat(m.profile.Tools, p.tools))
	}
	j.config, err = withKind(c, j.config)
	return j, err
}

// client returns the client of a run in e; that of its model is live.
func (p *program) client(live llm.Client, e *environment) llm.Client {
	if p.replay != nil {
		p.replay.live = p.replay.recorded.NewClient(e.plain.Info().WorkDir)
		live = p.replay.live
	}
	if p.wrapClient != nil {
		live = p.wrapClient(live)
	}
	return live
}

// printMiss writes the lines of an error of a replay but the first, such as a difference, to
// standard error, and returns the first.
func (p *program) printMiss(text string) string {
	first, rest, _ := strings.Cut(text, "\n")
	if rest != "" && p.replay != nil {
		_, _ = fmt.Fprintln(p.std.err, strings.TrimSuffix(sanitize(rest), "\n"))
		return first
	}
	return text
}

func (p *program) testSessionsCommand() *cli.Command {
	return &cli.Command{
		Usage:     "replay recorded sessions, and report differences",
		ArgsUsage: "[flags] DIR...",
		UsageText: `
sandboxagent session test testdata/sessions
sandboxagent session test sessions/first sessions/second`,
		Description: `
Each DIR is the directory of a session, or one with such directories. All runs of each session are
replayed with the recorded answers and results of tools: nothing runs, and no file is written. A
request that differs from the recorded one fails, as does a call that the policy of the session now
decides in another way. Exit codes: 0 all sessions are as recorded, 1 one is not.`,
		Action: p.action(p.testSessions),
	}
}

// testSessions is the command session test.
func (p *program) testSessions(ctx context.Context, c *cli.Context) (int, error) {
	if !c.Args().Present() {
		return 0, usagef("give the directories of recorded sessions")
	}
	var dirs []string
	for _, arg := range c.Args().Slice() {
		found, err := recordings(arg)
		if err != nil {
			return 0, err
		}
		dirs = append(dirs, found...)
	}
	code := codeDone
	for _, dir := range dirs {
		line := "ok " + dir
		if err := p.testSession(ctx, dir); err != nil {
			code = codeFailed
			line = fmt.Sprintf("FAIL %s: %s", dir, strings.TrimSuffix(err.Error(), "\n"))
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if _, err := fmt.Fprintln(p.std.out, line); err != nil {
			return 0, err
		}
	}
	return code, nil
}

// recordings returns the sessions in a directory, without those of sub-agents, or the directory if
// it is one.
func recordings(dir string) ([]string, error) {
	if isSession(dir) {
		return []string{dir}, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, usagef("%s", err)
	}
	var found []string
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		if isSession(at) && !recording.IsAgent(e.Name()) {
			found = append(found, at)
		}
	}
	if len(found) == 0 {
		return nil, usagef("%s has no recorded session", dir)
	}
	return found, nil
}

// testSession replays the session in a directory as a run of its own.
func (p *program) testSession(ctx context.Context, dir string) error {
	var problem strings.Builder
	q := &program{
		std: newStreams(strings.NewReader(""), io.Discard, &problem), tools: p.tools,
		replay: &replaying{all: true}, patience: p.patience,
	}
	args := []string{
		"sandboxagent", runName, "--quiet", "--model=" + replayPrefix + dir,
		"--" + toolsName + "=" + toolsRecorded,
	}
	_ = q.run(ctx, args) // the code of a session that failed, too
	switch {
	case q.replay.failed != nil:
		return q.replay.failed
	case !q.replay.played:
		return errors.New(strings.TrimPrefix(strings.TrimSpace(problem.String()), "sandboxagent: "))
	}
	return nil
}
