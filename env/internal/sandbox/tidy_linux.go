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
	"time"
)

// Descriptors of a tidier: one whose end of file means that the starting process has ended, and the
// first lock file.
const (
	deathFile = 3
	firstLock = 4
)

// orphanPause is the pause between two searches for orphans.
const orphanPause = time.Second

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

// DeathFile returns the file with which RunTidier is called in the tidier.
func DeathFile() *os.File { return os.NewFile(deathFile, "death") }

// RunTidier is the main function of the tidier. It reads the plan from life and calls Tidy at the
// end of life, whose other end the starting process, bubblewrap and the helper hold. At the end of
// death it kills what of bubblewrap still holds it.
func RunTidier(life io.Reader, death *os.File) error {
	signal.Ignore(
		syscall.SIGHUP,
		syscall.SIGINT,
		syscall.SIGTERM,
	) // the end of its stdin ends it
	in := bufio.NewReader(life)
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
	if held, ok := life.(*os.File); ok && left.Plan.By == Bubblewrap {
		go func() {
			_, _ = io.Copy(io.Discard, death)
			for ; ; time.Sleep(orphanPause) {
				killOrphans(held)
			}
		}()
	}
	switch _, err := in.ReadByte(); {
	case err == nil:
		return nil
	case !errors.Is(err, io.EOF):
		return err
	}
	return left.Plan.Tidy()
}
