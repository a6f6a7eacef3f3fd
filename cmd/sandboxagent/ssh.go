package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/sandboxagent/sandboxagent/env/ssh"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// hostFlags are the flags that only an environment on a host over SSH has a use for.
func hostFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "host", Usage: "log in to `[USER@]HOST[:PORT]`; HOST may be one of ~/.ssh/config", EnvVars: variable("host")},
		&cli.StringSliceFlag{Name: "identity", Usage: "try the private key in `FILE` first; may be repeated", EnvVars: variable("identity")},
		&cli.StringFlag{Name: "known-hosts", Usage: "take keys of hosts from `FILE` and no other", EnvVars: variable("known-hosts")},
		&cli.BoolFlag{Name: "accept-new-host-key", DisableDefaultText: true, Usage: "trust the key of a host that is not known yet, and remember it", EnvVars: variable("accept-new-host-key")},
	}
}

// hostHelperFlags are the flags for the helper on a host.
func hostHelperFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "helper-dir", Usage: "put the helper into `DIR` of the host, which must allow execution", DefaultText: "~/.cache, else /tmp", EnvVars: variable("helper-dir")},
	}
}

// readHostFlags reads the hostFlags.
func (p *program) readHostFlags(c *cli.Context) (ssh.Target, error) {
	t := ssh.Target{
		Host: c.String("host"), Identities: c.StringSlice("identity"), KnownHosts: c.String("known-hosts"), AcceptNew: c.Bool("accept-new-host-key"),
		Passphrase: p.passphrase(), Note: p.note,
	}
	if c.String("env") != "ssh" {
		return ssh.Target{}, nil
	}
	if t.Host == "" {
		return t, usagef("--host is missing: --env=ssh needs one, as [USER@]HOST[:PORT]")
	}
	return t, sshError(t.Validate())
}

// passphrase returns how to ask the user for the passphrase of a key; nil if there is no terminal.
func (p *program) passphrase() func(context.Context, string) ([]byte, error) {
	name := terminalName
	tty, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	_ = tty.Close() // it is opened again when it is needed
	return func(ctx context.Context, file string) ([]byte, error) {
		tty, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		fd := int(tty.Fd())
		before, err := term.GetState(fd)
		if err != nil {
			return nil, errors.Join(err, tty.Close())
		}
		type answer struct {
			text []byte
			err  error
		}
		screen, err := os.OpenFile(terminalScreen, os.O_RDWR, 0)
		if err != nil {
			return nil, errors.Join(err, tty.Close())
		}
		fmt.Fprintf(screen, "Passphrase of the key %s: ", oneLine(file))
		read := make(chan answer, 1)
		go func() {
			text, err := term.ReadPassword(fd)
			_, _ = fmt.Fprintln(screen)
			read <- answer{text, errors.Join(err, tty.Close(), screen.Close())}
		}()
		select {
		case <-ctx.Done():
			_ = term.Restore(fd, before) // the question is left
			return nil, context.Cause(ctx)
		case a := <-read:
			return a.text, a.err
		}
	}
}

// openSSH logs in to a host and opens an environment there.
func openSSH(ctx context.Context, o backendOptions) (opened, error) {
	if o.inherit.Mode != vars.Filtered && o.inherit.Mode != "" {
		return opened{}, usagef("--inherit-vars: commands on a host never see this machine's variables; --pass-var hands single ones on")
	}
	cfg := ssh.Config{
		WorkDir: o.dir, Vars: handedVars(o), TTL: o.remote.ttl, HelperDir: o.helperDir, Note: o.note,
	}
	if o.sandbox.wanted() {
		cfg.Sandbox = &o.sandbox.Sandbox
	}
	if self, err := executable(); err == nil {
		cfg.HelperProgram = ssh.HelperProgram{Path: self, Args: []string{helperArgument}, IfMissing: true}
	}
	if err := cfg.Validate(); err != nil {
		return opened{}, sshError(err)
	}
	host, err := ssh.Connect(ctx, o.target)
	if err != nil {
		return opened{}, sshError(err)
	}
	e, err := host.Open(ctx, cfg)
	if err != nil {
		return opened{}, errors.Join(sshError(hostPathError(err, o.sandbox)), host.Close())
	}
	if note := sandboxNote(e.Info()); note != "" && o.sandbox.wanted() {
		o.note(note)
	}
	place := &sshPlace{e, host}
	t := e.Ticket()
	return opened{
		Environment: place, session: e.Session(), ticket: &ticket{SSH: &t, Target: reachable(o.target)}, leave: place.Leave,
		kill: func() { _ = e.Kill() },
		abandon: func() { // what is left ends when it has been without a client for long enough
			killed := make(chan struct{})
			go func() {
				defer close(killed)
				_ = e.Kill()
			}()
			select {
			case <-killed:
			case <-time.After(killTime):
			}
		},
		whose: host.Way(), isolated: isolates(e.Info()),
	}, nil
}

// hostPathError tells mistakes about names on a host from what the host cannot do.
func hostPathError(err error, s sandboxOptions) error {
	var path *fs.PathError
	if errors.As(err, &path) && s.wanted() {
		for _, name := range slices.Concat(s.Write, s.Read) {
			if path.Path == name || strings.HasSuffix(path.Path, "/"+strings.TrimPrefix(name, "~/")) {
				return usagef("--allow-write, --allow-read: %s: %s; it must exist on the host", path.Path, path.Err)
			}
		}
	}
	var start *ssh.StartError
	if errors.Is(err, fs.ErrInvalid) && s.wanted() && errors.As(err, &start) {
		return invalidSandbox(err, s)
	}
	return workdirError(err)
}

// sshPlace is an environment whose host goes with it.
type sshPlace struct {
	*ssh.Environment
	host *ssh.Host
}

// Close implements env.Environment.
func (s *sshPlace) Close() error { return errors.Join(s.Environment.Close(), s.host.Close()) }

// Leave ends the contact and keeps what runs on the host.
func (s *sshPlace) Leave() error { return errors.Join(s.Environment.Leave(), s.host.Close()) }

// reachable is how to get to the same host from any folder.
func reachable(t ssh.Target) *sshTarget {
	found := &sshTarget{Host: t.Host, KnownHosts: absolute(t.KnownHosts)}
	for _, name := range t.Identities {
		found.Identities = append(found.Identities, absolute(name))
	}
	return found
}

// absolute returns the absolute name of a file; an empty name stays.
func absolute(name string) string {
	if full, err := filepath.Abs(name); err == nil && name != "" {
		return full
	}
	return name
}

// sshError makes usage errors of invalid flags, and names the flags that help with other errors.
func sshError(err error) error {
	var config *ssh.ConfigError
	var key *ssh.HostKeyError
	var login *ssh.AuthError
	var dir *ssh.HelperDirError
	switch {
	case errors.As(err, &config):
		switch config.Field {
		case "host", "identity", "known-hosts", "helper-dir", "ttl", "var":
			return usagef("--%s: %s", config.Field, config.Reason)
		case "StrictHostKeyChecking":
			return usagef("%s: %s; --accept-new-host-key does so too", config.Field, config.Reason)
		}
		return usagef("%s: %s", config.Field, config.Reason)
	case errors.As(err, &key) && key.Kind == ssh.HostKeyUnknown:
		return fmt.Errorf("%w; --accept-new-host-key adds it", err)
	case errors.As(err, &login) && len(login.Keys) == 0:
		return fmt.Errorf("%w; --identity FILE names a key", err)
	case errors.As(err, &login) && login.TooMany():
		return fmt.Errorf("%w; --identity FILE is tried first", err)
	case errors.As(err, &dir):
		return fmt.Errorf("%w; --helper-dir DIR names another one", err)
	}
	return err
}
