package recording

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// Player plays a session again, with the recorded answers of the model and results of tools. It
// runs nothing, and stores no session.
type Player struct {
	s      *Session
	client *Client
	// run is the index of the current run, and answers those of the user in it.
	run     int
	answers []session.Turn
}

// NewPlayer returns a player, which plays once.
func (s *Session) NewPlayer() *Player {
	p := &Player{s: s, client: s.NewClient("")}
	p.client.ended = llm.KindStream // which leaves the session open for the next run
	return p
}

// PlayOptions are options of a replay. The zero value plays all runs.
type PlayOptions struct {
	// Runs bounds the runs that are played; zero means no bound.
	Runs int
	// Task replaces the text of the first input; empty keeps it.
	Task string
}

// Play plays the runs of the session, each with the ID, the input and the limits of the recorded
// one. Of cfg it replaces the client, the environment, the executor and the
// store, and what would depend on people or the time: two plays with equal cfg send equal events.
// Of events, all times are the start of the recording. The profile, tools, settings and rules are
// those of cfg. The error is a *[MissError] or another difference; a run that ends as the recorded
// one is none, whatever its status. The result is that of the last run.
func (p *Player) Play(
	ctx context.Context, cfg agent.Config, o PlayOptions,
) (res agent.RunResult, err error) {
	p.configure(&cfg)
	a, err := agent.New(cfg)
	if err != nil {
		return res, err
	}
	defer a.Close() //nolint:errcheck // the session stores nothing
	played, err := a.NewSession(ctx, agent.SessionOptions{
		ID: p.s.ID, Surroundings: p.s.Surroundings(),
	})
	if err != nil {
		return res, err
	}
	for i := range p.s.Runs {
		in := p.s.Input(i)
		switch {
		case i > 0 && i == o.Runs:
			return res, nil
		case i == 0 && o.Task != "":
			in.Text = o.Task
		}
		if res, err = p.playRun(ctx, played, i, in); err != nil {
			return res, err
		}
	}
	return res, nil
}

// playRun plays one run. The error is a difference.
func (p *Player) playRun(
	ctx context.Context, played *agent.Session, run int, in agent.Input,
) (agent.RunResult, error) {
	recorded := p.s.Runs[run]
	limits := recorded.Limits
	limits.MaxDuration = 0 // no time passes
	in.RunID, in.Limits = recorded.RunID, &limits
	p.client.begin(run)
	p.run, p.answers = run, p.s.Inputs[run]
	if in.Reply == nil && len(p.answers) > 0 {
		p.answers = p.answers[1:]
	}
	played.Update(func(s *agent.Settings) { s.Model, s.ReasoningEffort = p.s.Model(run) })
	res, err := played.Run(ctx, in)
	res.Duration = p.duration()
	last := 0
	for i, x := range p.s.Exchanges {
		if x.Run <= run {
			last = i + 1
		}
	}
	switch left := p.client.Remaining() - (len(p.s.Exchanges) - last); {
	case ctx.Err() != nil:
		return res, context.Cause(ctx)
	case p.client.Err() != nil:
		return res, p.client.Err()
	case errors.Is(err, agent.ErrConfig), res.Status == agent.StatusInternalError:
		return res, err
	case cut(recorded) == "" && string(res.Status) != recorded.Ended.Status:
		return res, fmt.Errorf("run %d ended with %s, not with %s as it was recorded", run+1,
			res.Status, recorded.Ended.Status)
	case left > 0:
		return res, fmt.Errorf("run %d ended with %s, before %d of its recorded answers", run+1,
			res.Status, left)
	}
	return res, nil
}

// configure makes cfg that of a replay.
func (p *Player) configure(cfg *agent.Config) {
	t := p.s.newTools(p.client.fail)
	cfg.Client, cfg.Env, cfg.Executor = p.client, p.s.Environment(), t.execute
	cfg.Store, cfg.Clock = session.InMemory(), stopped(p.s.Created)
	cfg.Retry = llm.RetryPolicy{MaxRetries: -1}
	cfg.Approve, cfg.Answer = t.approver(), p.answer
	cfg.PastFailures, cfg.Titles = p.s.PastFailures, false
	cfg.Verify, cfg.Backups, cfg.ReadFirst = agent.Verify{}, false, false
	cfg.Policy.MaxParallel = 1 // events of concurrent calls have any order
	sinks := cfg.Sinks
	cfg.Sinks = nil
	for _, sink := range sinks {
		cfg.Sinks = append(cfg.Sinks, func(e event.Event) error {
			if end, ok := e.Data.(event.ProcessingEnd); ok {
				end.DurationMS = p.duration().Milliseconds()
				e.Data = end
			}
			return sink(e)
		})
	}
}

// duration is that of the recorded run.
func (p *Player) duration() time.Duration {
	if end := p.s.Runs[p.run].Ended; end != nil {
		return milliseconds(end.DurationMS)
	}
	return 0
}

// errUnanswered means that nobody answered the question of a model.
var errUnanswered = errors.New("no answer is recorded")

// answer is agent.Config.Answer.
func (p *Player) answer(context.Context, string) (string, error) {
	if len(p.answers) == 0 {
		return "", errUnanswered
	}
	text := p.answers[0].Text()
	p.answers = p.answers[1:]
	return text, nil
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// stopped is a clock that stands still.
type stopped time.Time

func (s stopped) Now() time.Time { return time.Time(s) }

func (stopped) Sleep(ctx context.Context, _ time.Duration) error { return context.Cause(ctx) }
