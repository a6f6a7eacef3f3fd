package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	// killTime bounds how long a second signal waits for what the environment started to be killed.
	killTime = time.Second
	// applyTime bounds how long it waits for changes that are being made on the host.
	applyTime = 30 * time.Second
)

// signalError is the cause with which a signal ends the context of a command.
type signalError struct{ signal os.Signal }

func (e *signalError) Error() string {
	if e.signal == os.Interrupt {
		return "interrupted"
	}
	return "terminated"
}

// code is 130 for an interrupt, and 143 for everything that asks the program to end.
func (e *signalError) code() int {
	if e.signal == os.Interrupt {
		return codeInterrupted
	}
	return codeTerminated
}

// interruptible runs work and returns its exit code. The first SIGINT, SIGTERM or SIGHUP ends the
// context of work, which then cleans up in its own time; the second kills what runs in the
// environment and returns as soon as no changes are being made on the host. While work runs, a
// closed pipe is an error of Write and not the end of the program.
func (p *program) interruptible(ctx context.Context, work func(context.Context) int) int {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	// Ignoring the signal would make the commands that are started ignore it too.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)

	defer p.restoreTerminal() // also where work does not come to its end
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan int, 1)
	go func() { done <- work(ctx) }()
	for first := true; ; first = false {
		select {
		case code := <-done:
			return code
		case s := <-signals:
			err := &signalError{s}
			cancel(err)
			show := p.display.Load()
			if !first {
				p.killAll(show)
				p.awaitApply(applyTime)
				return err.code()
			}
			if show != nil && s == os.Interrupt {
				go show.stopping() // a terminal may keep it waiting for ever
			}
		}
	}
}

// killAll kills what the open environment started and ends the display, if there is one, as far as
// that takes no longer than killTime.
func (p *program) killAll(show *progress) {
	kill := p.kill.Load()
	if kill == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		(*kill)()
		if show != nil {
			show.close()
		}
	}()
	timer := time.NewTimer(killTime)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// awaitApply waits until no changes are being made on the host, as far as that takes no longer than
// limit. From then on none are begun.
func (p *program) awaitApply(limit time.Duration) {
	done := make(chan struct{})
	go func() {
		p.applying.Lock() // for good
		close(done)
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
