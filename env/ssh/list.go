package ssh

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// listScript looks at the environments on a host. It is sent to a shell, behind its variables.
//
//go:embed list.sh
var listScript string

// lookTime bounds one look at the environments, and the end of one of them.
const lookTime = time.Minute

// maxListed bounds how many environments of a host are believed.
const maxListed = 10_000

// Listed is an environment on a host, of the user who is logged in there.
type Listed struct {
	// Session is its name.
	Session string
	// Running says that its helper runs. One whose helper has ended without cleaning up is garbage.
	Running bool
	// PID is the number of the helper's process.
	PID int
	// Begun is when it was opened, by the host's clock; zero if unknown.
	Begun time.Time
	// TTL is how long it outlives its client.
	TTL time.Duration
	// From is the address that its client came from; empty if unknown.
	From string

	folder string
}

// List returns the environments that there are on the host, whoever opened them, but for those without a helper. What the
// host tells that cannot be one is left out.
func (h *Host) List(ctx context.Context) ([]Listed, error) {
	lines, err := h.look(ctx, "list", "")
	if err != nil {
		return nil, err
	}
	var list []Listed
	for _, line := range lines {
		// A command there can make a folder of any name.
		if l, err := parseListed(line); err == nil {
			list = append(list, l)
		}
	}
	return list, nil
}

// parseListed reads "env ALIVE PID BEGUN TTL FROM FOLDER".
func parseListed(line string) (Listed, error) {
	bad := func() (Listed, error) {
		return Listed{}, fmt.Errorf("%w: the host's shell answers %q", env.ErrProtocol, cleanText(line))
	}
	words := strings.SplitN(line, " ", 7)
	if len(words) != 7 || words[0] != "env" {
		return bad()
	}
	pid, err := strconv.Atoi(words[2])
	begun, err2 := strconv.ParseInt(words[3], 10, 64)
	session, ok := strings.CutPrefix(path.Base(words[6]), "e-")
	if err != nil || err2 != nil || !ok || !sessionPattern().MatchString(session) || !path.IsAbs(words[6]) {
		return bad()
	}
	l := Listed{Session: session, Running: words[1] == "1", PID: pid, folder: words[6]}
	if begun > 0 {
		l.Begun = time.Unix(begun, 0)
	}
	if ttl, err := time.ParseDuration(words[4]); err == nil {
		l.TTL = ttl
	}
	if words[5] != "-" {
		l.From = cleanText(words[5])
	}
	return l, nil
}

// CollectOptions are options of Collect. The zero value removes garbage only.
type CollectOptions struct {
	// DryRun removes nothing.
	DryRun bool
	// All ends, besides, the environments that run.
	All bool
}

// Collected is an environment that Collect removed, or would.
type Collected struct {
	Listed
	// Err is why it could not be removed.
	Err error
}

// Collect removes what helpers that were killed have left on the host: their folders, and the processes that carry their
// names. It returns what it removed or could not, which is also in the error.
func (h *Host) Collect(ctx context.Context, opts CollectOptions) ([]Collected, error) {
	list, err := h.List(ctx)
	if err != nil {
		return nil, err
	}
	var done []Collected
	var errs []error
	for _, l := range list {
		if l.Running && !opts.All {
			continue
		}
		c := Collected{Listed: l}
		if !opts.DryRun {
			said, err := h.look(ctx, "remove", l.folder)
			if err == nil && (len(said) == 0 || said[0] != "removed") {
				err = fmt.Errorf("ssh: %s: %s could not be removed", h, l.folder)
			}
			c.Err = err
			errs = append(errs, err)
		}
		done = append(done, c)
	}
	return done, errors.Join(errs...)
}

// look runs the script and returns its answers.
func (h *Host) look(ctx context.Context, action, folder string) (lines []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.patience, fmt.Errorf("no answer within %s", h.patience))
	defer cancel()
	p, err := h.start(ctx, shellLine)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.Close() })
	defer func() {
		if !stop() && err != nil {
			err = context.Cause(ctx)
		}
		_ = p.Close()
		if err != nil {
			err = fmt.Errorf("ssh: look at the environments on %s: %w", h, err)
		}
	}()
	mark := newMark()
	script := "m=" + quote(mark) + "\na=" + quote(action) + "\nw=" + quote(folder) + "\n" + listScript
	go func() { _, _ = io.WriteString(p.in, script) }() // what it answers tells
	said := answers{p: p, mark: mark}
	for len(lines) < maxListed {
		line, err := said.next()
		if err != nil {
			return nil, err
		}
		if line == "done" {
			return lines, nil
		}
		lines = append(lines, line)
	}
	return nil, fmt.Errorf("%w: more than %d environments", env.ErrProtocol, maxListed)
}
