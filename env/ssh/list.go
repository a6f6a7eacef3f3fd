package ssh

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// listScript lists and removes environments. It is sent to a shell, after its variables.
//
//go:embed list.sh
var listScript string

const (
	// scriptTime bounds one run of listScript, and Attach. A busy host with many processes takes long.
	scriptTime = 3 * time.Minute
	// maxListed bounds the environments of a host.
	maxListed = 10_000
)

// Listed is an environment of the logged-in user on a host. Its State is "running", or "dead" if
// its helper was killed; then it is Garbage. Its Owner is the address of the client that opened it,
// or empty.
type Listed struct {
	remote.Listed
	// PID is the process ID of the helper.
	PID int

	dir string
}

// List returns the environments of the logged-in user on the host, of all clients. It
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
	if err != nil || err2 != nil || !ok || !remote.IsSession(session) ||
		!path.IsAbs(words[6]) {
		return Listed{}, unexpected(line)
	}
	l := Listed{PID: pid, dir: words[6]}
	l.Session, l.State, l.Reason = session, "running", fmt.Sprintf("process %d", pid)
	if words[1] != "1" {
		l.State, l.Garbage, l.Reason = "dead", true, "its helper was killed"
	}
	if created > 0 {
		l.Created = time.Unix(created, 0)
	}
	if ttl, err := time.ParseDuration(words[4]); err == nil {
		l.TTL = ttl
	}
	if words[5] != "-" {
		l.Owner = cleanText(words[5])
	}
	return l, nil
}

// Collect removes the remains of killed helpers on the host: their directories, and the processes
// whose variables name them. With o.All it ends running environments too.
func (h *Host) Collect(
	ctx context.Context, o remote.CollectOptions,
) ([]remote.Collected, error) {
	list, err := h.List(ctx)
	if err != nil {
		return nil, err
	}
	return o.Collect(func(add func(kind, name, reason string, remove func() error)) error {
		for _, l := range list {
			if !l.Garbage && !o.All {
				continue
			}
			reason := l.Reason
			if !l.Garbage {
				reason = "it was running"
			}
			add("environment", l.Session, reason, func() error { return h.remove(ctx, l) })
		}
		return nil
	})
}

// Discard removes the environment session of the logged-in user from the host, with all of its
// processes, also one that does not answer. A missing one is not an error.
func (h *Host) Discard(ctx context.Context, session string) error {
	list, err := h.List(ctx)
	if err != nil {
		return err
	}
	for _, l := range list {
		if l.Session == session {
			err = errors.Join(err, h.remove(ctx, l))
		}
	}
	return err
}

// remove removes an environment.
func (h *Host) remove(ctx context.Context, l Listed) error {
	lines, err := h.runList(ctx, "remove", l.dir)
	if err == nil && (len(lines) == 0 || lines[0] != "removed") {
		err = fmt.Errorf("ssh: %s: %s could not be removed", h, l.dir)
	}
	return err
}

// boundScript bounds ctx by scriptTimeout.
func (h *Host) boundScript(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, h.scriptTimeout,
		fmt.Errorf("no answer within %s", h.scriptTimeout))
}

// runList runs listScript and returns its answers.
func (h *Host) runList(ctx context.Context, action, dir string) (lines []string, err error) {
	ctx, cancel := h.boundScript(ctx)
	defer cancel()
	vars := [][2]string{{"a", action}, {"w", dir}}
	p, err := h.runScript(ctx, vars, listScript, func(line string) (bool, error) {
		if line == "done" {
			return true, nil
		}
		if lines = append(lines, line); len(lines) > maxListed {
			return true, fmt.Errorf("%w: more than %d environments", env.ErrProtocol, maxListed)
		}
		return false, nil
	})
	if err != nil {
		return nil, fmt.Errorf("ssh: %s environments on %s: %w", action, h, err)
	}
	_ = p.Close()
	return lines, nil
}
