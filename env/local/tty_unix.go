//go:build unix

package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
)

const (
	// endOfFile is the end-of-file character where the terminal has no other one.
	endOfFile = 0x04
	// modePause is the pause between two reads of the mode of a terminal whose input has ended.
	modePause = 50 * time.Millisecond
	// inputTime bounds the wait for typed input to arrive at a terminal.
	inputTime = 100 * time.Millisecond
)

// connectTerminal opens a pseudo-terminal and puts the process's side into attr. It returns no
// files: x.terminal keeps that side open.
func (x *execution) connectTerminal(
	cmd env.Command, attr *os.ProcAttr,
) (childFiles []*os.File, err error) {
	control, tty, err := pty.Open()
	if err != nil {
		return nil, noTerminal(err)
	}
	defer func() { _ = control.Close() }()
	output, err := polled(control)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a terminal: %w", err), tty.Close())
	}
	p := newPump(output, cmd.Stdout, "stdout")
	p.terminal = true
	x.pumps, x.terminal = []*pump{p}, newTerminal(tty, output)
	input, err := polled(control)
	if err != nil {
		return nil, fmt.Errorf("open a terminal: %w", err)
	}
	keys := &keyboard{f: input}
	x.feeder = &feeder{w: keys, end: keys.end}
	if err := setSize(output, startSize(cmd.TTY.Size)); err != nil {
		return nil, fmt.Errorf("set the size of a terminal: %w", err)
	}
	if cmd.Stdin == nil {
		keys.typeEnd() // before the command can change the mode
		awaitInput(tty)
	}
	attr.Files = []*os.File{tty, tty, tty}
	attr.Sys = &syscall.SysProcAttr{Setctty: true}
	return nil, nil
}

// noTerminal returns the error of a failed open. A system without terminals for this user must not
// read as a missing program, or one without permission.
func noTerminal(err error) error {
	for _, none := range []error{
		fs.ErrNotExist, fs.ErrPermission, unix.ENXIO, unix.ENODEV,
		pty.ErrUnsupported,
	} {
		if errors.Is(err, none) {
			return fmt.Errorf("open a terminal: %w (%s)", errors.ErrUnsupported, err.Error())
		}
	}
	return fmt.Errorf("open a terminal: %w", err)
}

// polled returns a duplicate of f that the runtime polls: deadlines and Close end its reads and
// writes. Those of f they would not, because package pty has called Fd.
func polled(f *os.File) (*os.File, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	cerr := conn.Control(func(old uintptr) {
		if fd, err = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0); err != nil {
			err = os.NewSyscallError("fcntl", err)
		} else if err = unix.SetNonblock(fd, true); err != nil {
			err = errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
		}
	})
	if err = errors.Join(cerr, err); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// setSize sets the size of a terminal. The system sends SIGWINCH to its foreground process group.
func setSize(f *os.File, size env.TTYSize) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	cerr := conn.Control(func(fd uintptr) {
		err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{
			Row: size.Rows,
			Col: size.Columns,
		})
	})
	return errors.Join(cerr, os.NewSyscallError("ioctl", err))
}

// awaitInput waits, up to inputTime, until typed input has arrived at a terminal: the system may
// deliver it in the background.
func awaitInput(tty *os.File) {
	conn, err := tty.SyscallConn()
	if err != nil {
		return
	}
	_ = conn.Control(func(fd uintptr) {
		set := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		_, _ = unix.Poll(set, int(inputTime/time.Millisecond))
	})
}

// keyboard is the input of a terminal. It is used by one goroutine, but for Close.
type keyboard struct {
	f      *os.File
	typed  bool
	last   byte // the last one typed
	ended  bool // the end-of-file character was typed
	edited bool // a program edited lines itself when the mode was read last
}

func (k *keyboard) Write(b []byte) (int, error) {
	n, err := k.f.Write(b)
	if n > 0 {
		k.typed, k.last = true, b[n-1]
	}
	return n, err
}

func (k *keyboard) Close() error { return k.f.Close() }

// end types the end-of-file character, and returns when the keyboard is closed.
//
// The character loses its meaning if the mode changes before it is read. A program that edits lines
// itself changes the mode when it starts, and reads the character as a key, so end types it again
// then.
func (k *keyboard) end() {
	if !k.ended {
		k.typeEnd()
	}
	for {
		time.Sleep(modePause)
		mode, err := k.mode()
		if err != nil {
			return
		}
		if !k.edited && edited(mode) {
			if _, err := k.f.Write([]byte{eofKey(mode)}); err != nil {
				return
			}
		}
		k.edited = edited(mode)
	}
}

// typeEnd types the end-of-file character. In canonical mode, which is line by line, it means the
// end only at the start of a line; elsewhere it ends the line, and is typed twice.
func (k *keyboard) typeEnd() {
	mode, err := k.mode()
	if err != nil {
		return
	}
	keys := []byte{eofKey(mode)}
	if canonical(mode) && k.unfinished(mode) {
		keys = append(keys, keys...)
	}
	_, _ = k.f.Write(keys) // a terminal that is gone has an end already
	k.ended, k.edited = true, edited(mode)
}

// mode returns how the terminal works now.
func (k *keyboard) mode() (mode *unix.Termios, err error) {
	conn, err := k.f.SyscallConn()
	if err != nil {
		return nil, err
	}
	cerr := conn.Control(func(fd uintptr) { mode, err = unix.IoctlGetTermios(int(fd), getTermios) })
	return mode, errors.Join(cerr, err)
}

// canonical reports whether programs get the input line by line.
func canonical(mode *unix.Termios) bool { return mode.Lflag&unix.ICANON != 0 }

// edited reports whether a program reads key by key and echoes the input itself. Where the
// terminal shows it, a key would spoil the output.
func edited(mode *unix.Termios) bool { return mode.Lflag&(unix.ICANON|unix.ECHO) == 0 }

// eofKey returns the key that means the end of the input.
func eofKey(mode *unix.Termios) byte {
	if key := mode.Cc[unix.VEOF]; canonical(mode) && enabled(key) {
		return key
	}
	return endOfFile
}

// enabled reports whether a key that has a meaning to a terminal is set.
func enabled(key byte) bool { return key != 0 && key != 0xff }

// unfinished reports whether a line was started and not ended, neither by its end nor by a key that
// discards it.
func (k *keyboard) unfinished(mode *unix.Termios) bool {
	if !k.typed || k.last == '\n' || k.last == '\r' && mode.Iflag&unix.ICRNL != 0 {
		return false
	}
	for _, i := range []int{unix.VEOF, unix.VEOL, unix.VKILL, unix.VINTR, unix.VQUIT, unix.VSUSP} {
		if key := mode.Cc[i]; enabled(key) && key == k.last {
			return false
		}
	}
	return true
}
