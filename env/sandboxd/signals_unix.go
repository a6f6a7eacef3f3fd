//go:build unix

package sandboxd

import (
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// notify catches the signals that would end the process. As PID 1 it catches all that commands may
// send.
func notify() (signals chan os.Signal, stop func()) {
	signals = make(chan os.Signal, 16)
	ends := []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM}
	if os.Getpid() == 1 {
		ends = append(ends, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGABRT)
		for _, f := range faultSignals() {
			ends = append(ends, f)
		}
	} else {
		// The parent may have made this process outlive a terminal (nohup).
		ends = slices.DeleteFunc(ends, signal.Ignored)
	}
	signal.Notify(signals, ends...)
	// Caught, SIGPIPE becomes an error of a write. Ignored, commands would inherit that.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, unix.SIGPIPE)
	return signals, func() {
		signal.Stop(signals)
		signal.Stop(broken)
	}
}

// isForwarded reports whether PID 1 forwards a signal to the commands.
func isForwarded(s os.Signal) bool {
	number, ok := s.(syscall.Signal)
	return ok && slices.Contains([]syscall.Signal{
		unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH,
	}, number)
}
