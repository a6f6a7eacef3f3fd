//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// terminalName is the name of the terminal that the program was started from.
const terminalName = "/dev/tty"

// terminalScreen is where questions are written.
const terminalScreen = "/dev/tty"

// watchTerminal returns a channel that receives when the size of the terminal may have changed,
// until done is closed. Until then, a signal that makes the program dump its state and die calls
// restore first.
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
