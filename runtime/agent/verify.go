package agent

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/policy/redact"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/failure"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// checkOutput is the number of bytes of each end of a check's output that the model sees.
const checkOutput = 8 << 10

// check runs the command of Verify. If it does not pass, message is the message for the model.
func (l *loop) check(ctx context.Context) (passed bool, message string, err error) {
	l.checks++
	defer l.scope.Cache.Changing()()
	out := env.NewCapture(env.CaptureOptions{Head: checkOutput, Tail: checkOutput})
	redacted := redactedOutput{l.scope.Redactor.NewWriter(func(p []byte) { _, _ = out.Write(p) })}
	res, err := l.env.Exec(ctx, env.Command{
		Argv:    append(append([]string{}, l.env.Info().Shell...), l.verify.Command),
		Timeout: l.verify.Timeout, MaxProcesses: l.limits().MaxProcesses,
		Stdout: redacted, Stderr: redacted,
	})
	redacted.Close()
	if err != nil {
		return false, "", err
	}
	passed = res.ExitCode == 0 && !res.TimedOut && !res.TooManyProcesses
	text := ""
	if !passed {
		text = tool.Sanitize(strings.ToValidUTF8(string(out.Bytes()), string(utf8.RuneError)))
		text = l.scope.Redactor.Text(text)
	}
	l.send(event.Verify{
		Command: l.verify.Command, Passed: passed, ExitCode: res.ExitCode, Attempt: l.checks,
		DurationMS: res.Elapsed.Milliseconds(), Output: text,
	})
	if passed {
		l.history.failures.Passed(failure.KindCheck)
		return true, "", nil
	}
	message = verifyText(l.verify.Command, res, text)
	return false, message, l.note(ctx, failure.OfCheck(message, res.ExitCode, text, l.clock.Now()))
}

// redactedOutput is the writer of a command whose output has no secrets behind it.
type redactedOutput struct{ *redact.Writer }

func (o redactedOutput) Write(p []byte) (int, error) {
	o.Writer.Write(p)
	return len(p), nil
}
