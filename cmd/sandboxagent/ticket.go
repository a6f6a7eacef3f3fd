package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/ssh"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// ticketFolder holds, in the state folder, a file for each environment that one can come back to.
const ticketFolder = "environments"

// ticketTime is how long the file of an environment is kept whose program was killed.
const ticketTime = 30 * 24 * time.Hour

// ticket is what it takes to come back to an environment. It is a secret.
type ticket struct {
	Docker *docker.Ticket `json:"docker,omitempty"`
	// Daemon is where the container is.
	Daemon string      `json:"daemon,omitempty"`
	SSH    *ssh.Ticket `json:"ssh,omitempty"`
	Target *sshTarget  `json:"target,omitempty"`
}

// sshTarget is how to get to a host.
type sshTarget struct {
	Host       string   `json:"host"`
	Identities []string `json:"identities,omitempty"`
	KnownHosts string   `json:"known_hosts,omitempty"`
}

var sessionName = lazyregexp.New(`^[a-z0-9][a-z0-9-]{0,62}$`)

// keepTicket stores the ticket of an environment and returns how to remove it. Without a state folder it does nothing.
func keepTicket(session string, t ticket) (drop func() error, err error) {
	nothing := func() error { return nil }
	state, err := stateDir()
	if err != nil || state == "" {
		return nothing, err
	}
	dir := filepath.Join(state, ticketFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nothing, nil // it is only of use later
	}
	dropOldTickets(dir)
	data, err := json.Marshal(t)
	if err != nil {
		return nothing, err
	}
	name := filepath.Join(dir, session+".json")
	err = replaceFile(name, 0o600, func(w io.Writer) error {
		_, err := w.Write(append(data, '\n'))
		return err
	})
	if err != nil {
		return nothing, nil // it is only of use later
	}
	return func() error {
		if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}, nil
}

// dropOldTickets removes the tickets of programs that were killed long ago.
func dropOldTickets(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // they are in nobody's way
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), ".json") && time.Since(info.ModTime()) > ticketTime {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// readTicket returns the ticket of the environment id, which is a session or the name of a container.
func readTicket(id string) (t ticket, drop func() error, err error) {
	session := strings.TrimPrefix(id, "sandboxagent-")
	if !sessionName().MatchString(session) {
		return t, nil, usagef("%q is no name of an environment; \"sandboxagent env list\" shows them", id)
	}
	state, err := stateDir()
	if err != nil {
		return t, nil, err
	}
	name := filepath.Join(state, ticketFolder, session+".json")
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || state == "" {
		return t, nil, usagef("there is no environment %q of yours that was opened from this machine; it has ended, or belongs to somebody else", id)
	}
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		return t, nil, fmt.Errorf("%s cannot be read: %w", name, err)
	}
	return t, func() error { return os.Remove(name) }, nil
}
