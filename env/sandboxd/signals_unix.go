//go:build unix

package sandboxd

import (
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// notify catches what would end the process. As process 1 it catches everything that the runtime would take for a reason
// to end, since commands may send it.
func notify() (signals chan os.Signal, stop func()) {
	signals = make(chan os.Signal, 16)
	ends := []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM}
	if os.Getpid() == 1 {
		ends = append(ends, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGABRT)
		for _, f := range faultSignals() {
			ends = append(ends, f)
		}
	} else {
		// Who starts this process may have said that it is to outlive a terminal.
		ends = slices.DeleteFunc(ends, signal.Ignored)
	}
	signal.Notify(signals, ends...)
	// Caught, a broken pipe is an error of a write like any other. Ignored, it would be ignored by commands too.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, unix.SIGPIPE)
	return signals, func() {
		signal.Stop(signals)
		signal.Stop(broken)
	}
}

// isForwarded reports whether process 1 passes a signal on to the commands.
func isForwarded(s os.Signal) bool {
	number, ok := s.(syscall.Signal)
	return ok && slices.Contains([]syscall.Signal{
		unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH,
	}, number)
}
