package sandbox

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// firstLock is the descriptor of the first lock file in the tidier.
const firstLock = 3

// dismissByte ends a tidier that has nothing left to do.
const dismissByte = '.'

// tidyState is the input of a tidier.
type tidyState struct {
	Plan Plan `json:"plan"`
	// Locks are the names of the files from firstLock on.
	Locks []string `json:"locks,omitempty"`
}

// Leaves reports whether Tidy has something to remove.
func (p *Plan) Leaves() bool {
	return p.OwnTemp != "" || len(p.Placeholders) > 0 || len(p.MustStayAbsent) > 0
}

// Locks returns the files that a tidier inherits after its standard streams.
func (p *Plan) Locks() []*os.File { return p.locks }

// Entrust writes the plan to a tidier.
func (p *Plan) Entrust(w io.Writer) error {
	left := tidyState{Plan: *p}
	for _, f := range p.locks {
		left.Locks = append(left.Locks, f.Name())
	}
	return json.NewEncoder(w).Encode(left)
}

// Dismiss ends a tidier, which then removes nothing.
func Dismiss(w io.Writer) error {
	_, err := w.Write([]byte{dismissByte})
	return err
}

// RunTidier is the main function of the tidier. It reads the plan from r and calls Tidy at the end
// of r, whose other end the starting process and the helper hold.
func RunTidier(r io.Reader) error {
	signal.Ignore(
		syscall.SIGHUP,
		syscall.SIGINT,
		syscall.SIGTERM,
	) // the end of its stdin ends it
	in := bufio.NewReader(r)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	var left tidyState
	if err := json.Unmarshal(line, &left); err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	for i, name := range left.Locks {
		left.Plan.locks = append(left.Plan.locks, os.NewFile(uintptr(firstLock+i), name))
	}
	switch _, err := in.ReadByte(); {
	case err == nil:
		return nil
	case !errors.Is(err, io.EOF):
		return err
	}
	return left.Plan.Tidy()
}
