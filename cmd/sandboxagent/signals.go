package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

const (
	// killTime bounds the wait of a second signal for killing the processes of the environment.
	killTime = time.Second
	// applyTime bounds its wait for changes that are being applied on the host.
	applyTime = 30 * time.Second
)

// signalError is the cause of a context that a signal ended.
type signalError struct{ signal os.Signal }

func (e *signalError) Error() string {
	if e.signal == os.Interrupt {
		return "interrupted"
	}
	return "terminated"
}

// code is 130 for an interrupt, and 143 for every other request to terminate.
func (e *signalError) code() int {
	if e.signal == os.Interrupt {
		return codeInterrupted
	}
	return codeTerminated
}

// interruptible runs work and returns its exit code. The first SIGINT, SIGTERM or SIGHUP ends the
// context of work, which then cleans up; the second kills the processes of the environment and
// returns as soon as no changes are being applied on the host. A SIGINT before these goes to the
// command of execute, if one runs. During work a closed pipe is an error of Write and does not end
// the program.
func (p *program) interruptible(ctx context.Context, work func(context.Context) int) int {
	if p.part != nil {
		return work(ctx) // the batch gets the signals
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	// Started commands would inherit an ignored signal.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)

	defer p.restoreTerminal() // also where work does not come to its end
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan int, 1)
	go func() { done <- work(ctx) }()
	for first := true; ; {
		select {
		case code := <-done:
			return code
		case s := <-signals:
			if first && s == os.Interrupt && p.interruptCommand() {
				continue
			}
			err := &signalError{s}
			cancel(err)
			show := p.display.Load()
			if !first {
				p.killAll(show)
				p.awaitApply(applyTime)
				return err.code()
			}
			first = false
			if show != nil && s == os.Interrupt {
				go show.stopping() // a terminal may keep it waiting for ever
			}
		}
	}
}

// interruptCommand interrupts the command of execute. It reports false if none runs, or if it was
// interrupted before.
func (p *program) interruptCommand() bool {
	command := p.command.Swap(nil)
	if command != nil {
		*command <- struct{}{}
	}
	return command != nil
}

// killAll kills the processes of the open environment and ends the display, within killTime.
func (p *program) killAll(show *progress) {
	kill := p.kill.Load()
	if kill == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var both sync.WaitGroup
		both.Go(*kill)
		if show != nil {
			both.Go(show.close)
		}
		both.Wait()
	}()
	timer := time.NewTimer(killTime)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// awaitApply waits until no changes are being applied on the host, at most limit, and prevents
// further ones.
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
