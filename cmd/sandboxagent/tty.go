package main

import (
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/sandboxagent/sandboxagent/env"
)

// ttyFlags are the flags of commands that pass standard input to another one.
func ttyFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{
			Name: "tty", Aliases: []string{"t"}, Category: groupCommand,
			Usage: "run the command on a new terminal",
		},
		&cli.BoolFlag{
			Name: "interactive", Aliases: []string{"i"}, Category: groupCommand,
			Usage: "has no effect, as the command always gets standard input; for -it",
		},
	}
}

// onTerminal gives cmd a terminal. If standard input is a terminal, it becomes the keyboard of the
// new one: it passes all keys on until restoreTerminal is called, and both have the same size.
// given are the names of variables that the user set.
func (p *program) onTerminal(cmd *env.Command, given []string) error {
	cmd.TTY = new(env.TTY)
	if kind := os.Getenv("TERM"); kind != "" && !slices.Contains(given, "TERM") {
		cmd.Vars = append(cmd.Vars, "TERM="+kind)
	}
	in := terminal(p.std.in)
	if in == nil {
		return nil
	}
	fd := int(in.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return fmt.Errorf("--tty: standard input: %w", err)
	}
	done := make(chan struct{})
	restore := sync.OnceFunc(func() {
		close(done)
		_ = term.Restore(fd, before) // a terminal that is gone needs nothing
	})
	p.restore.Store(&restore)
	// before the size is read, so that no change is missed
	changed := watchTerminal(done, restore)
	sizes := make(chan env.TTYSize)
	cmd.TTY.Size, cmd.TTY.Resize = terminalSize(fd), sizes
	if _, err := term.MakeRaw(fd); err != nil {
		restore()
		return fmt.Errorf("--tty: standard input: %w", err)
	}
	go func() {
		for {
			select {
			case <-done:
				return
			case <-changed:
			}
			select {
			case <-done:
				return
			case sizes <- terminalSize(fd):
			}
		}
	}()
	return nil
}

// restoreTerminal resets the terminal of the user after onTerminal.
func (p *program) restoreTerminal() {
	if restore := p.restore.Load(); restore != nil {
		(*restore)()
	}
}

// terminalSize returns the size of a terminal; zero if unknown.
func terminalSize(fd int) env.TTYSize {
	columns, rows, err := term.GetSize(fd)
	if err != nil {
		return env.TTYSize{}
	}
	return env.TTYSize{Columns: uint16(columns), Rows: uint16(rows)}
}
