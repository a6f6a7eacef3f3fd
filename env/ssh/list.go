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

// listScript lists and removes environments. It is sent to a shell, after its variables.
//
//go:embed list.sh
var listScript string

const (
	// scriptTime bounds one run of listScript, and Attach.
	scriptTime = time.Minute
	// maxListed bounds the environments of a host.
	maxListed = 10_000
)

// Listed is an environment of the logged-in user on a host.
type Listed struct {
	// Session is its name.
	Session string
	// Running means that its helper runs. One whose helper was killed is garbage.
	Running bool
	// PID is the process ID of the helper.
	PID int
	// Created is when it was opened, by the host's clock; zero if unknown.
	Created time.Time
	// TTL is how long its helper lives without a client.
	TTL time.Duration
	// From is the address of the client that opened it; empty if unknown.
	From string

	dir string
}

// List returns the environments of the logged-in user on the host, from whatever client. It
// ignores invalid entries: a command can create a directory of any name.
func (h *Host) List(ctx context.Context) ([]Listed, error) {
	lines, err := h.runList(ctx, "list", "")
	if err != nil {
		return nil, err
	}
	var list []Listed
	for _, line := range lines {
		if l, err := parseListed(line); err == nil {
			list = append(list, l)
		}
	}
	return list, nil
}

// parseListed parses "env ALIVE PID CREATED TTL FROM DIR".
func parseListed(line string) (Listed, error) {
	words := strings.SplitN(line, " ", 7)
	if len(words) != 7 || words[0] != "env" {
		return Listed{}, unexpected(line)
	}
	pid, err := strconv.Atoi(words[2])
	created, err2 := strconv.ParseInt(words[3], 10, 64)
	session, ok := strings.CutPrefix(path.Base(words[6]), "e-")
	if err != nil || err2 != nil || !ok || !sessionPattern().MatchString(session) ||
		!path.IsAbs(words[6]) {
		return Listed{}, unexpected(line)
	}
	l := Listed{Session: session, Running: words[1] == "1", PID: pid, dir: words[6]}
	if created > 0 {
		l.Created = time.Unix(created, 0)
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
	// All ends running environments too.
	All bool
}

// Collected is an environment that Collect removed, or would remove.
type Collected struct {
	Listed
	// Err is why it could not be removed.
	Err error
}

// Collect removes what killed helpers left on the host: their directories, and the processes whose
// variables name them. The error joins those of the results.
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
			lines, err := h.runList(ctx, "remove", l.dir)
			if err == nil && (len(lines) == 0 || lines[0] != "removed") {
				err = fmt.Errorf("ssh: %s: %s could not be removed", h, l.dir)
			}
			c.Err = err
			errs = append(errs, err)
		}
		done = append(done, c)
	}
	return done, errors.Join(errs...)
}

// boundScript bounds ctx by scriptTimeout.
func (h *Host) boundScript(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, h.scriptTimeout, fmt.Errorf("no answer within %s",
		h.scriptTimeout))
}

// runList runs listScript and returns its answers.
func (h *Host) runList(ctx context.Context, action, dir string) (lines []string, err error) {
	ctx, cancel := h.boundScript(ctx)
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
			err = fmt.Errorf("ssh: %s environments on %s: %w", action, h, err)
		}
	}()
	mark := newMark()
	script := "m=" + quote(mark) + "\na=" + quote(action) + "\nw=" + quote(dir) + "\n" + listScript
	go func() { _, _ = io.WriteString(p.in, script) }() // a failure ends the answers
	answers := answers{p: p, mark: mark}
	for len(lines) < maxListed {
		line, err := answers.next()
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
