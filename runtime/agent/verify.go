package agent

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// verifyKeep is how many bytes of a check's output the model sees of each end.
const verifyKeep = 8 << 10

// verify runs the host's check. If it does not pass, note is what the model is told.
func (l *loop) verify(ctx context.Context) (passed bool, note string, err error) {
	cfg := &l.s.agent.cfg
	l.checks++
	out, res, err := env.Output(ctx, cfg.Env, env.Command{
		Argv:    append(append([]string{}, cfg.Env.Info().Shell...), cfg.Verify.Command),
		Timeout: cfg.Verify.Timeout,
	}, env.OutputOptions{Combined: true, Stdout: env.CaptureOptions{
		Head: verifyKeep,
		Tail: verifyKeep,
	}})
	if err != nil {
		return false, "", err
	}
	passed = res.ExitCode == 0 && !res.TimedOut
	l.emit(event.Verify{
		Command: cfg.Verify.Command, Passed: passed, ExitCode: res.ExitCode, Attempt: l.checks,
		DurationMS: res.Elapsed.Milliseconds(),
	})
	if passed {
		return true, "", nil
	}
	text := tool.Sanitize(strings.ToValidUTF8(string(out.Stdout.Bytes()), string(utf8.RuneError)))
	note = tool.VerifyNote(cfg.Verify.Command, res.ExitCode, res.TimedOut, res.Elapsed, text)
	l.res.Failures = append(l.res.Failures, Failure{
		Source: FailureVerify, Kind: "check_failed", Message: note, Time: cfg.Clock.Now(),
	})
	return false, note, nil
}
