package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// Descriptors of a program that Command starts.
const (
	programFile = iota + 3
	planFile
	lifeFile
	parentFile
	socketFile
)

// ParentFile returns Files.Parent in the started program.
func ParentFile() (*os.File, error) {
	if err := unix.SetNonblock(parentFile, true); err != nil { // or reads of it hold a thread each
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(parentFile, "outside"), nil
}

// SocketFile returns Files.Socket in the started program.
func SocketFile() *os.File { return os.NewFile(socketFile, "socket") }

// files returns the descriptors from programFile on, the null device for each that is nil.
func (h Files) files(program, plan *os.File) (files []*os.File, release func(), err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, errors.Join(err, plan.Close())
	}
	files = []*os.File{program, plan, h.Life, h.Parent, h.Socket}
	for i := range files {
		if files[i] == nil {
			files[i] = null
		}
	}
	return files, func() { _ = errors.Join(plan.Close(), null.Close()) }, nil
}

// setCloseOnExec closes the received descriptors in processes that this program starts.
func setCloseOnExec() {
	for fd := lifeFile; fd <= socketFile; fd++ {
		unix.CloseOnExec(fd)
	}
}

// inheritFiles leaves the received descriptors open for the program that replaces this one.
func inheritFiles() error {
	for fd := uintptr(lifeFile); fd <= socketFile; fd++ {
		if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
			return os.NewSyscallError("fcntl", err)
		}
	}
	return nil
}

// fill writes the plan to an empty file and rewinds it. On an error it closes the file.
func (p *Plan) fill(f *os.File) (*os.File, error) {
	err := json.NewEncoder(f).Encode(p)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// ReceivePlan returns the plan of the Command that started this program.
func ReceivePlan() (p Plan, err error) {
	f := os.NewFile(planFile, "plan")
	if f == nil {
		return Plan{}, errors.New("no plan was handed over")
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := json.NewDecoder(f).Decode(&p); err != nil {
		return Plan{}, fmt.Errorf("the plan: %w", err)
	}
	return p, nil
}
