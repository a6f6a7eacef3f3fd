package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env"
)

func (p *program) execCommand() *cli.Command {
	return &cli.Command{
		Usage:     "run one command, without a model",
		ArgsUsage: "[flags] -- COMMAND [ARGUMENT...]",
		UsageText: `
sandboxagent exec -- go test ./...
sandboxagent exec --env docker -C . -it -- bash`,
		Description: `
The command gets standard input, output and error unchanged; only on a terminal, control
sequences are removed from its output. With -t it runs on a new terminal: standard input is its
keyboard, and its output goes to standard output unchanged, with control sequences. The exit
code is that of the command, 128+n if signal n ended it, 124 after --timeout, 125 if the
environment failed or the usage is wrong, 126 if the command cannot be executed, 127 if it was
not found, 130 or 143 if sandboxagent itself was interrupted or terminated.

The first ^C interrupts the command, as it would without sandboxagent. The second stops it, with
SIGTERM and two seconds later SIGKILL; the third kills it at once.`,
		Flags: slices.Concat(ttyFlags(), patchFlags(),
			environmentFlags(groupCommand, "stop the command after this `DURATION`")),
		Action: p.action(p.exec),
	}
}

// errOutputGone is the cause that ends a command after the reader of its output has closed it, as
// SIGPIPE would.
var errOutputGone = errors.New("the reader of the output closed it")

// exec is the command exec.
func (p *program) exec(ctx context.Context, c *cli.Context) (code int, err error) {
	argv := c.Args().Slice()
	switch {
	case len(argv) == 0:
		return 0, usagef("the command is missing; put it after \"--\"")
	case strings.TrimSpace(argv[0]) == "":
		return 0, usagef("the name of the command after \"--\" is empty")
	}
	s, err := p.parseEnvironmentFlags(c)
	if err != nil {
		return 0, err
	}
	settings, err := parsePatchFlags(c, s)
	if err != nil {
		return 0, err
	}
	s.copyTree = c.IsSet("workdir") || settings != patchSettings{}
	e, err := p.open(ctx, s)
	if err != nil {
		_, err = unstarted(ctx, settings.file, err)
		return 0, err
	}
	defer func() {
		if cerr := e.close(); err == nil && cerr != nil {
			p.fail(cerr)
			if code == codeDone {
				code = codeExecFailed
			}
		}
		if lerr := e.logError(); err == nil && lerr != nil {
			p.fail(lerr)
			if code == codeDone {
				code = codeExecFailed
			}
		}
	}()
	change, err := startPatch(ctx, settings, e)
	if err != nil {
		_, err = unstarted(ctx, settings.file, err)
		return 0, err
	}
	g := newTreeGuard(ctx, e, true)
	g.start()
	cmd := env.Command{Argv: slices.Clone(argv), Stdin: p.std.in, Timeout: s.timeout}
	if c.Bool("tty") {
		if err := p.onTerminal(&cmd, s.given); err != nil {
			return 0, err
		}
	}
	g.wait()
	var stderr tail
	code = p.execute(ctx, e.wrapped, cmd, &stderr)
	if code != codeDone {
		p.noteRefusal(e.plain.Info(), string(stderr.text))
	}
	if change != nil {
		e.kill()
	}
	if _, err := g.finish(ctx); err != nil {
		p.fail(err)
		code = codeExecFailed
	}
	file, err := change.finish(ctx, e.plain, code == codeDone)
	if settings.apply && code != codeDone && file != "" {
		p.notify("the changes are not applied, since the command failed; the patch is in " + file)
	}
	if err := errors.Join(err, s.fetch(ctx, e)); err != nil {
		p.fail(err)
		if code == codeDone {
			code = codeExecFailed
		}
	}
	return code, nil
}

// execute runs cmd with the standard streams and returns the exit code. seen, if set, keeps the end
// of its standard error, except on a terminal of its own.
func (p *program) execute(
	ctx context.Context, e env.Runner, cmd env.Command, seen *tail,
) int {
	outer := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer p.restoreTerminal() // so that a panic is printed on a working terminal
	end := p.connectOutput(&cmd, cancel, seen)
	if cmd.TTY == nil { // on a terminal ^C is a key
		interrupts := make(chan struct{}, 1)
		cmd.Interrupt = interrupts
		p.command.Store(&interrupts)
	}
	res, err := e.Exec(ctx, cmd)
	p.command.Store(nil)
	end()
	p.restoreTerminal()
	code := execCode(ctx, res, err)
	var start *env.StartError
	switch {
	case res.TimedOut && err == nil:
		p.printLine("the command was stopped after " + cmd.Timeout.String() + " (--timeout)")
	case outer.Err() != nil, code == codeBrokenPipe, err == nil:
	case errors.As(err, &start):
		p.fail(start)
	default:
		p.fail(err)
	}
	return code
}

// connectOutput makes the standard streams the output of cmd. A write error ends cmd with failed.
// The caller calls end after cmd.
func (p *program) connectOutput(
	cmd *env.Command, failed context.CancelCauseFunc, seen *tail,
) (end func()) {
	if cmd.TTY != nil {
		// a terminal needs the control sequences
		cmd.Stdout = &lastWriter{w: p.std.raw.out, failed: failed}
		return func() {}
	}
	stdout, endStdout := printable(p.std.raw.out)
	stderr, endStderr := printable(p.std.raw.err)
	cmd.Stdout = &lastWriter{w: stdout, failed: failed}
	cmd.Stderr = &lastWriter{w: stderr, failed: failed, seen: seen}
	if sameFile(p.std.raw.out, p.std.raw.err) {
		cmd.Stdout = cmd.Stderr // which keeps the order
	}
	return func() {
		_ = endStdout() // a write error of a lost terminal has been reported already
		_ = endStderr()
	}
}

// sameFile reports whether two streams are the same file.
func sameFile(a, b any) bool {
	f, ok1 := a.(*os.File)
	g, ok2 := b.(*os.File)
	if !ok1 || !ok2 {
		return false
	}
	one, err1 := f.Stat()
	other, err2 := g.Stat()
	return err1 == nil && err2 == nil && os.SameFile(one, other)
}

// lastWriter writes to w and ends the command after an error.
type lastWriter struct {
	w      io.Writer
	failed context.CancelCauseFunc
	// seen, if set, keeps the end of the output.
	seen *tail
}

func (l *lastWriter) Write(b []byte) (int, error) {
	if l.seen != nil {
		l.seen.add(string(b[max(len(b)-tailBytes, 0):]))
	}
	n, err := l.w.Write(b)
	if err != nil {
		l.failed(outputError(err))
	}
	return n, err
}

// outputError returns the cause that ends a command whose output cannot be written.
func outputError(err error) error {
	if isBrokenPipe(err) {
		return errOutputGone
	}
	return err
}
