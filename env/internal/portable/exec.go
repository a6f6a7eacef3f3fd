package portable

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

const (
	// maxArgument is the longest argument or variable that Linux passes, and maxArguments more than it passes in all.
	maxArgument, maxArguments = 128 << 10, 6 << 20
	// inlineInput is how much standard input goes along with the command: what a pipe holds.
	inlineInput = 32 << 10
	// leaveTime bounds the wait for what a shell says at last, when nothing of its command is left.
	leaveTime = 5 * time.Second
	// maxRecords bounds what a shell says about one command on each stream.
	maxRecords = 8
)

// Exec implements env.Environment.
func (e *Environment) Exec(ctx context.Context, cmd env.Command) (env.Result, error) {
	x, err := e.start(ctx, cmd)
	if err != nil {
		return env.Result{}, &env.StartError{Argv: slices.Clone(cmd.Argv), Err: err}
	}
	defer e.work.Done()
	result, err := x.wait(ctx)
	if start := (*env.StartError)(nil); err != nil && !errors.As(err, &start) {
		err = fmt.Errorf("exec %s: %w", cmd.Argv[0], err)
	}
	return result, err
}

// execution is a command that runs, or is about to.
type execution struct {
	e       *Environment
	cmd     env.Command
	dir     string
	shell   *shell
	mark    string // of the records about it
	marker  string // the variable by which its processes are found
	sinks   [2]*sink
	records chan said
	unread  chan error // why not all of standard input could be read; it holds one

	// What the shell has said.
	carriers [2]int // the processes that carry the streams; zero before the command begins
	root     int    // the process that becomes the command
	open     int    // how many streams have not ended
	exited   bool
	status   record
	failed   error // why the command did not start
	lost     error // why nothing more will be said

	began    time.Time
	ended    time.Time // when the command exited
	signaled bool      // by this package
}

// said is a record of one of the streams of a shell, or the error that ended it.
type said struct {
	stream int
	rec    record
	err    error
}

// start checks cmd, takes a shell and tells it to run cmd. On success it has registered a call in progress.
func (e *Environment) start(ctx context.Context, cmd env.Command) (*execution, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	if err := checkCommand(cmd); err != nil {
		return nil, err
	}
	dir := e.info.WorkDir
	if cmd.Dir != "" {
		var err error
		if dir, err = e.resolve(cmd.Dir); err != nil {
			return nil, &fs.PathError{Op: "chdir", Path: cmd.Dir, Err: err}
		}
	}
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	x := &execution{
		e: e, cmd: cmd, dir: dir, mark: newMark(), marker: e.nextMarker(), records: make(chan said, 2*maxRecords),
		unread: make(chan error, 1), open: 2,
	}
	script, later, err := x.script()
	if err == nil {
		x.shell, err = e.pool.take(ctx, e.done, true)
	}
	if err != nil {
		e.work.Done()
		return nil, err
	}
	x.shell.once = later
	x.begin(script)
	return x, nil
}

// checkCommand reports what cannot be run.
func checkCommand(cmd env.Command) error {
	if len(cmd.Argv) == 0 || cmd.Argv[0] == "" {
		return fmt.Errorf("empty argv: %w", fs.ErrInvalid)
	}
	if cmd.TTY != nil {
		if cmd.Stderr != nil {
			return fmt.Errorf("a command on a terminal has no stderr of its own: %w", fs.ErrInvalid)
		}
		return fmt.Errorf("there are no terminals without a helper: %w", errors.ErrUnsupported)
	}
	if cmd.Timeout < 0 {
		return fmt.Errorf("negative timeout: %w", fs.ErrInvalid)
	}
	if err := checkVars(cmd.Vars); err != nil {
		return err
	}
	sum := 0
	for i, arg := range slices.Concat(cmd.Argv, cmd.Vars) {
		if strings.ContainsRune(arg, 0) {
			return fmt.Errorf("argument %d has a NUL byte: %w", i, fs.ErrInvalid)
		}
		if sum += len(arg) + 9; len(arg) >= maxArgument || sum > maxArguments {
			return syscall.E2BIG
		}
	}
	return nil
}

// script returns what the shell is told to run the command, and whether standard input follows.
func (x *execution) script() (text string, later bool, err error) {
	var b strings.Builder
	out, errs := x.streams()
	stdin, input := "/dev/null", ""
	b.WriteString("{ sa_m=" + x.mark + "\n")
	if data, known, err := knownInput(x.cmd.Stdin); err != nil {
		return "", false, err
	} else if known {
		input, stdin = "printf "+format(data)+" 2>/dev/null | ", ""
	} else if x.cmd.Stdin != nil {
		later, stdin = true, `"$sa_d/i"`
		b.WriteString("sa_feed\n")
	}
	b.WriteString("sa_begin\n{ " + input + "(sa_sub\nexec")
	if stdin != "" {
		b.WriteString(" <" + stdin)
	}
	// What shells complain about on the way is not for the command's stderr, which it gets last.
	output, last := " >/dev/null", ""
	if out == 1 {
		output = ` >"$sa_d/o"`
	}
	if same(x.cmd.Stdout, x.cmd.Stderr) {
		last = " 2>&1"
	} else if errs == 1 {
		last = ` 2>"$sa_d/e"`
	}
	b.WriteString(output + " 2>/dev/null 4>&- || exit 1\nsa_cd " + quote(x.dir) + "\n")
	x.program(&b, last)
	fmt.Fprintf(&b, ")\nsa_r=$?; } 4>&2 2>\"$sa_d/m\"\nsa_end %d %d", out, errs)
	if later {
		b.WriteString("\nsa_leave")
	}
	b.WriteString("\n}\n")
	return b.String(), later, nil
}

// streams tells which of the streams have a pipe of their own.
func (x *execution) streams() (out, errs int) {
	if x.cmd.Stdout != nil {
		out = 1
	}
	if x.cmd.Stderr != nil && !same(x.cmd.Stdout, x.cmd.Stderr) {
		errs = 1
	}
	return out, errs
}

// program writes what sets the variables and becomes the program, with a last redirection.
func (x *execution) program(b *strings.Builder, last string) {
	b.WriteString("unset " + x.e.shellMarker() + "\nexport " + x.marker + "=1")
	var others []string
	for _, v := range env.DedupVars(slices.Concat(x.e.cfg.Vars, x.cmd.Vars), "linux") {
		if name, value, _ := strings.Cut(v, "="); exportable(name) {
			b.WriteString(" " + name + "=" + quote(value))
		} else {
			others = append(others, quote(v))
		}
	}
	program := x.cmd.Argv[0]
	b.WriteString("\nsa_find " + quote(program) + "\nexec ")
	if len(others) > 0 {
		b.WriteString("env " + strings.Join(others, " ") + " ")
	}
	switch {
	case len(others) > 0 && strings.Contains(program, "="):
		b.WriteString(`sh -c 'exec "$0" "$@"' ` + quote(program))
	case strings.HasPrefix(program, "-"):
		b.WriteString(`"$sa_p"`)
	default:
		b.WriteString(quote(program))
	}
	for _, arg := range x.cmd.Argv[1:] {
		b.WriteString(" " + quote(arg))
	}
	b.WriteString(last + "\nexit $?")
}

// knownInput returns standard input if all of it is there and it is short.
func knownInput(r io.Reader) (data []byte, known bool, err error) {
	l, ok := r.(interface{ Len() int })
	if !ok || l.Len() > inlineInput {
		return nil, false, nil
	}
	data, err = io.ReadAll(io.LimitReader(r, inlineInput+1))
	if err == nil && len(data) > inlineInput {
		err = fmt.Errorf("standard input grows: %w", fs.ErrInvalid)
	}
	return data, true, err
}

// begin sends the script and starts what carries the streams.
func (x *execution) begin(script string) {
	locks := [2]*sync.Mutex{new(sync.Mutex), new(sync.Mutex)}
	if same(x.cmd.Stdout, x.cmd.Stderr) {
		locks[1] = locks[0]
	}
	x.sinks = [2]*sink{{w: x.cmd.Stdout, mu: locks[0]}, {w: x.cmd.Stderr, mu: locks[1]}}
	x.began = time.Now()
	go func() { _, _ = io.WriteString(x.shell.raw.Stdin, script) }() // a loss shows in what the shell says
	go x.listen(0, x.shell.stdout)
	go x.listen(1, x.shell.stderr)
}

// listen delivers one stream of the shell until the shell says that it has ended.
func (x *execution) listen(stream int, s *scanner) {
	for records := 0; ; {
		data, rec, err := s.next(x.mark)
		if rec.kind != 0 {
			if records++; records == maxRecords {
				err = fmt.Errorf("%w: too many records", env.ErrProtocol)
			}
		}
		switch {
		case err != nil:
			x.records <- said{stream: stream, err: err}
			return
		case rec.kind == 0:
			x.sinks[stream].deliver(data)
		default:
			x.records <- said{stream: stream, rec: rec}
			if rec.kind == 'e' {
				return
			}
		}
	}
}

// feed copies standard input to the shell, which passes it on.
func (x *execution) feed() {
	// The command may not want it.
	_ = sendParts(x.shell.raw.Stdin, x.cmd.Stdin, func(err error) {
		select {
		case x.unread <- fmt.Errorf("stdin: %w", err):
		default: // never: it is called once
		}
	})
}
