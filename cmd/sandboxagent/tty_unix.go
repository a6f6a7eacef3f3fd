//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// terminalName is the controlling terminal of the program.
const terminalName = "/dev/tty"

// terminalScreen is the output for questions.
const terminalScreen = "/dev/tty"

// watchTerminal returns a channel that receives after changes of the size of the terminal, until
// done is closed. Until then, a signal that dumps the program calls restore first.
func watchTerminal(done <-chan struct{}, restore func()) (changed <-chan os.Signal) {
	resized, fatal := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	signal.Notify(fatal, syscall.SIGQUIT, syscall.SIGABRT)
	go func() {
		defer signal.Stop(resized)
		defer signal.Stop(fatal)
		select {
		case <-done:
		case s := <-fatal:
			restore()
			signal.Reset(s)
			if number, ok := s.(syscall.Signal); ok {
				_ = syscall.Kill(os.Getpid(), number) // which this process may do
			}
		}
	}()
	return resized
}
