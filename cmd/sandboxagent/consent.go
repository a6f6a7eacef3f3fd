package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// consentFile, in the state directory, lists the directories in which the user always allows a
// model to work.
const consentFile = "allowed-directories.json"

// consent verifies that the user allows a model to act without a sandbox in the working directory
// of e: by --yes, by an earlier answer for this directory, or by an answer to a question. Without a
// state directory answers are not stored. Without a terminal it returns a usageError. Where, if not
// empty, describes the directories that the question is about.
func (p *program) consent(
	ctx context.Context, yes bool, state string, e *environment, where string,
) error {
	dir, rights := e.plain.Info().WorkDir, "your rights on this machine"
	if e.account != "" {
		dir, rights = e.backend+"://"+e.account+dir, "the rights of "+e.account
	} else if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		dir = resolved
	}
	if yes {
		return nil
	}
	dir = cmp.Or(where, dir)
	var allowed []string
	choices := "[y]es, [N]o: "
	if state != "" {
		var err error
		if allowed, err = readConsents(state); err != nil {
			return err
		}
		choices = "[y]es, [a]lways in this directory, [N]o: "
	}
	if slices.Contains(allowed, dir) {
		return nil
	}
	if !p.interactive() {
		return usagef("the environment has no sandbox: allow a model to run commands in %s with "+
			"--yes (no terminal for a question)", dir)
	}
	fmt.Fprintf(p.std.err, "The environment has no sandbox. With %s, the model will read files\n"+
		"and run commands, in %s\n", oneLine(rights), oneLine(dir))
	for {
		fmt.Fprint(p.std.err, "Allow it? "+choices)
		answer, err := p.lines.read(ctx, p.std.in)
		if err != nil {
			fmt.Fprintln(p.std.err)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return usagef("no answer: nothing was done (%s)", err)
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "y", "yes":
			return nil
		case "a", "always":
			if state == "" {
				continue
			}
			return writeConsents(state, append(allowed, dir))
		case "n", "no", "":
			return usagef("not allowed; nothing was done")
		}
	}
}

// readConsents returns the directories that this user allowed before, or root.
func readConsents(state string) ([]string, error) {
	file := filepath.Join(state, consentFile)
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !ownedHere(info) {
		return nil, nil
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(file)
	}
	var allowed []string
	if err == nil {
		err = json.Unmarshal(data, &allowed)
	}
	if err != nil {
		return nil, usagef("%s cannot be read: %s; mend or remove it", file, err)
	}
	return allowed, nil
}

func writeConsents(state string, allowed []string) error {
	data, err := json.MarshalIndent(allowed, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return usagef("the answer cannot be kept: %s", err)
	}
	err = replaceFile(filepath.Join(state, consentFile), 0o600, func(w io.Writer) error {
		_, err := w.Write(append(data, '\n'))
		return err
	})
	if err != nil {
		return usagef("the answer cannot be kept: %s", err)
	}
	return nil
}

// lineReader reads lines from a stream whose reads may block forever. Its zero value is ready. It
// allows one read at a time.
type lineReader struct {
	r *bufio.Reader
	// pending is a read that goes on after the end of the context of its call.
	pending chan line
}

type line struct {
	text string
	err  error
}

// discard forgets the lines of in that came before now: those that no call of read has returned.
func (l *lineReader) discard(in io.Reader) {
	if f, ok := in.(*os.File); ok {
		flushInput(f)
	}
	select {
	case <-l.pending:
		l.pending = nil
	default:
	}
	if l.r != nil && l.pending == nil {
		_, _ = l.r.Discard(l.r.Buffered()) // it never fails
	}
}

// read returns the next line of in without its end. All calls pass the same in.
func (l *lineReader) read(ctx context.Context, in io.Reader) (string, error) {
	if l.r == nil {
		l.r = bufio.NewReader(in)
	}
	if l.pending == nil {
		l.pending = make(chan line, 1)
		go func(r *bufio.Reader, read chan<- line) {
			text, err := r.ReadString('\n')
			read <- line{text, err}
		}(l.r, l.pending)
	}
	select {
	case <-ctx.Done():
		return "", context.Cause(ctx)
	case got := <-l.pending:
		l.pending = nil
		if got.err != nil && got.text == "" {
			if errors.Is(got.err, io.EOF) {
				got.err = errors.New("end of input")
			}
			return "", got.err
		}
		return strings.TrimRight(got.text, "\r\n"), nil
	}
}
