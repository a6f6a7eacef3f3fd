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

// firstLock is the first descriptor of the files of Locks in the process of a Tidier.
const firstLock = 3

// dismissed is what a Tidier is told when nothing is left to do.
const dismissByte = '.'

// heritage is what a Tidier needs to know.
type tidyState struct {
	Plan Plan `json:"plan"`
	// Locks are the names of the files from firstLock on.
	Locks []string `json:"locks,omitempty"`
}

// Leaves reports whether something has to be removed in the end.
func (p *Plan) Leaves() bool {
	return p.OwnTemp != "" || len(p.Placeholders) > 0 || len(p.MustStayAbsent) > 0
}

// Locks returns the files that a Tidier gets, behind its standard streams.
func (p *Plan) Locks() []*os.File { return p.locks }

// Entrust hands the plan to a Tidier.
func (p *Plan) Entrust(w io.Writer) error {
	left := tidyState{Plan: *p}
	for _, f := range p.locks {
		left.Locks = append(left.Locks, f.Name())
	}
	return json.NewEncoder(w).Encode(left)
}

// Dismiss ends a Tidier, which then does nothing.
func Dismiss(w io.Writer) error {
	_, err := w.Write([]byte{dismissByte})
	return err
}

// RunTidier is the whole of a process that tidies up in place of another one, should that be killed. It reads the plan from r,
// and waits for the end of r, whose other end that process and the confined program hold.
func RunTidier(r io.Reader) error {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM) // it ends with those for whom it is there
	in := bufio.NewReader(r)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("what to tidy up: %w", err)
	}
	var left tidyState
	if err := json.Unmarshal(line, &left); err != nil {
		return fmt.Errorf("what to tidy up: %w", err)
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
