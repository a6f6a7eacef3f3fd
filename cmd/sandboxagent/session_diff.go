package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/aymanbagabas/go-udiff"
	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/runtime/session"
)

func (p *program) diffSessionsCommand() *cli.Command {
	return &cli.Command{
		Usage:     "print what changed in files between two points",
		ArgsUsage: "[flags] ID[@N] [ID[@N]]",
		UsageText: `
sandboxagent session diff ID@12
sandboxagent session diff ID@12 FORK`,
		Description: `
Without a point a session counts with all of its changes, and without a second session, the same
one does. Two sessions must have begun with the same files, as a fork does.`,
		Action: p.action(p.diffSessions),
	}
}

// diffSessions is the command session diff.
func (p *program) diffSessions(_ context.Context, c *cli.Context) (int, error) {
	if n := c.NArg(); n < 1 || n > 2 {
		return 0, usagef("give one or two sessions as ID or ID@N (\"session list\" prints the IDs)")
	}
	from, err := loadPoint(c.Args().First())
	if err != nil {
		return 0, err
	}
	id, _, _ := strings.Cut(c.Args().First(), "@")
	if c.NArg() == 2 {
		id = c.Args().Get(1)
	}
	to, err := loadPoint(id)
	if err != nil {
		return 0, err
	}
	changes, err := from.changesTo(to)
	if err != nil {
		return 0, err
	}
	for _, change := range changes {
		text, err := diffFile(change, from.record, to.record)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", change.Name, err)
		}
		if _, err := io.WriteString(p.std.out, text); err != nil {
			return 0, err
		}
	}
	return codeDone, nil
}

// sessionPoint is a session at a point, or with 0 at its end.
type sessionPoint struct {
	record *session.Record
	point  int64
}

// loadPoint loads the session that ID or ID@N names.
func loadPoint(text string) (s sessionPoint, err error) {
	if strings.Contains(text, "@") {
		if text, s.point, err = splitPoint(text); err != nil {
			return s, err
		}
	}
	dir, err := findSession(text)
	if err == nil {
		s.record, err = session.Load(dir)
	}
	return s, err
}

// changesTo returns the changes of files from s to another point.
func (s sessionPoint) changesTo(to sessionPoint) ([]session.FileChange, error) {
	back, err := s.back(s.point)
	if err != nil {
		return nil, err
	}
	same := s.record.ID == to.record.ID
	if !same { // by the start of both
		start, err := s.back(s.record.Start())
		if err != nil {
			return nil, err
		}
		if back, err = session.Compose(session.Invert(back), start); err != nil {
			return nil, err
		}
		back = session.Invert(back)
	}
	there, err := to.back(to.point)
	if err != nil {
		return nil, err
	}
	if !same {
		start, err := to.back(to.record.Start())
		if err != nil {
			return nil, err
		}
		if there, err = session.Compose(session.Invert(start), there); err != nil {
			return nil, err
		}
	}
	return session.Compose(session.Invert(back), there)
}

// back returns the changes from the end of the session to a point.
func (s sessionPoint) back(point int64) ([]session.FileChange, error) {
	if point == 0 {
		return nil, nil
	}
	back, err := s.record.ChangesBack(point)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", s.record.ID, err)
	}
	return back, nil
}

// diffFile returns the change of a file for people, with contents from one of the sessions.
func diffFile(c session.FileChange, records ...*session.Record) (string, error) {
	before, err := contentOf(c.Before, records)
	if err != nil {
		return "", err
	}
	after, err := contentOf(c.After, records)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	name := row(string(c.Name))
	switch none := (session.FileVersion{}); {
	case c.Before == none:
		fmt.Fprintf(&b, "new file %s, mode %o\n", name, modeOf(c.After))
	case c.After == none:
		fmt.Fprintf(&b, "deleted file %s\n", name)
	case c.Before.Mode != c.After.Mode:
		fmt.Fprintf(&b, "mode of %s from %o to %o\n", name, modeOf(c.Before), modeOf(c.After))
	}
	if bytes.IndexByte(before, 0) >= 0 || bytes.IndexByte(after, 0) >= 0 {
		fmt.Fprintf(&b, "binary file %s\n", name)
	} else {
		b.WriteString(udiff.Unified("a/"+name, "b/"+name, string(before), string(after)))
	}
	return b.String(), nil
}

// modeOf returns the mode of a file as git has it.
func modeOf(v session.FileVersion) int64 {
	if v.Mode.Type() == fs.ModeSymlink {
		return 0o120000
	}
	return 0o100000 | int64(v.Mode.Perm())
}

// contentOf returns the content of a version of a file; that of a missing one is empty.
func contentOf(v session.FileVersion, records []*session.Record) (data []byte, err error) {
	if v == (session.FileVersion{}) {
		return nil, nil
	}
	for _, r := range records {
		f, oerr := r.OpenObject(v.SHA256)
		if oerr != nil {
			err = oerr
			continue
		}
		data, err = io.ReadAll(f)
		_ = f.Close() // it was only read
		return data, err
	}
	return nil, err
}
