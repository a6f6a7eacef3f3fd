package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/ssh"
	envtransfer "github.com/sandboxagent/sandboxagent/env/transfer"
)

// sshBackend runs commands on a remote host.
type sshBackend struct {
	notify  func(string)
	target  ssh.Target
	options remote.Options
	sandbox sandboxOptions
	// helperDir is the directory of the remote host that the helper is stored in; empty means the
	// default.
	helperDir string
}

func (*sshBackend) name() string { return "ssh" }

func (*sshBackend) inPlace() bool { return true }

func (*sshBackend) serverUsage() (list, gc string) {
	return "name, state, age and TTL of environments, the client's address, and a note",
		"directories and processes of killed helpers; with --all all " +
			"environments of the account, in use or not"
}

func (*sshBackend) connectFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name: "host", Category: groupSSH,
			Usage: "log in to `[USER@]HOST[:PORT]`; HOST may be one of ~/.ssh/config; required",
		},
		&cli.StringSliceFlag{
			Name: "identity", Category: groupSSH,
			Usage: "try the private key in `FILE` first; may be repeated",
		},
		&cli.StringFlag{
			Name: "known-hosts", Category: groupSSH,
			DefaultText: "those of ssh",
			Usage:       "read host keys from `FILE` only",
		},
		&cli.BoolFlag{
			Name: "accept-new-host-key", Category: groupSSH,
			Usage: "trust and remember the key of an unknown host",
		},
	}
}

func (b *sshBackend) flags() []cli.Flag {
	return slices.Concat(remoteFlags(), sandboxFlags(), b.connectFlags(), []cli.Flag{
		&cli.StringFlag{
			Name: "helper-dir", Category: groupSSH,
			DefaultText: "the user's cache directory, else /tmp",
			Usage:       "store the helper in `DIR` of the remote host, which must allow execution",
		},
	})
}

func (b *sshBackend) parse(c *cli.Context) (err error) {
	if b.options, err = parseRemoteFlags(c, b.notify); err != nil {
		return err
	}
	if err := b.parseConnection(c); err != nil {
		return err
	}
	b.helperDir = c.String("helper-dir")
	b.sandbox, err = parseSandboxFlags(c)
	return err
}

func (b *sshBackend) parseConnection(c *cli.Context) error {
	b.target = ssh.Target{
		Host: c.String("host"), Identities: c.StringSlice("identity"),
		KnownHosts: c.String("known-hosts"), AcceptNew: c.Bool("accept-new-host-key"),
		Passphrase: passphrasePrompt(), Warn: b.notify,
	}
	if b.target.Host == "" {
		return usagef("--host is missing: --env=ssh needs one, as [USER@]HOST[:PORT]")
	}
	return sshError(b.target.Validate())
}

func (b *sshBackend) open(ctx context.Context, o openConfig) (_ opened, err error) {
	cfg := ssh.Config{Options: b.options, WorkDir: o.dir, HelperDir: b.helperDir}
	if cfg.Vars, err = remoteVars(o); err != nil {
		return opened{}, err
	}
	if b.sandbox.requested() {
		cfg.Sandbox = &b.sandbox.Sandbox
	}
	if err := cfg.Validate(); err != nil {
		return opened{}, sshError(err)
	}
	host, err := ssh.Connect(ctx, b.target)
	if err != nil {
		return opened{}, sshError(err)
	}
	e, err := host.Open(ctx, cfg)
	if err != nil {
		return opened{}, errors.Join(sshError(remotePathError(err, b.sandbox)), host.Close())
	}
	b.sandbox.report(e.Info(), "sandbox on "+host.String(), o)
	t := e.Ticket()
	return opened{
		plain:    &sshEnvironment{Environment: e, host: host},
		kill:     func() { _ = e.Kill() },
		abandon:  func() { within(func() { _ = e.Kill() }) }, // the rest ends after the TTL
		isolated: isolates(e.Info()),
		account:  host.Route(),
		remote:   true,
		keeping: &keeping{
			session: e.Session(), ttl: cfg.TTL,
			stored: sshKept{Ticket: t, Target: absoluteTarget(b.target)},
			leave:  func() error { return errors.Join(e.Leave(), host.Close()) },
		},
	}, nil
}

// remotePathError turns mistakes about names on a remote host into usageErrors.
func remotePathError(err error, s sandboxOptions) error {
	var path *fs.PathError
	if errors.As(err, &path) && s.requested() {
		for _, name := range slices.Concat(s.Write, s.Read) {
			if path.Path == name || strings.HasSuffix(path.Path, "/"+strings.TrimPrefix(name, "~/")) {
				return usagef("--allow-write, --allow-read: %s: %s; it must exist on the host", path.Path,
					path.Err)
			}
		}
	}
	var start *ssh.OpenError
	if errors.Is(err, fs.ErrInvalid) && s.requested() && errors.As(err, &start) {
		return invalidSandbox(err, s)
	}
	return workdirError(err)
}

// sshEnvironment closes its connection to the host with itself.
type sshEnvironment struct {
	*ssh.Environment
	host *ssh.Host
	// attached: another process opened the environment, and Close only disconnects.
	attached bool
}

// Close implements env.Environment.
func (s *sshEnvironment) Close() error {
	if s.attached {
		return errors.Join(s.Leave(), s.host.Close())
	}
	return errors.Join(s.Environment.Close(), s.host.Close())
}

// sshKept is stored to reattach to an environment on a remote host.
type sshKept struct {
	ssh.Ticket
	Target sshTarget `json:"target"`
}

// sshTarget is the part of ssh.Target that is stored.
type sshTarget struct {
	Host       string   `json:"host"`
	Identities []string `json:"identities,omitempty"`
	KnownHosts string   `json:"known_hosts,omitempty"`
}

// absoluteTarget returns t with absolute file names.
func absoluteTarget(t ssh.Target) sshTarget {
	absolute := func(name string) string {
		if full, err := filepath.Abs(name); err == nil && name != "" {
			return full
		}
		return name
	}
	found := sshTarget{Host: t.Host, KnownHosts: absolute(t.KnownHosts)}
	for _, name := range t.Identities {
		found.Identities = append(found.Identities, absolute(name))
	}
	return found
}

// restored returns b with the server of a kept environment.
func (b *sshBackend) restored(t sshTarget) *sshBackend {
	return &sshBackend{notify: b.notify, target: ssh.Target{
		Host: t.Host, Identities: t.Identities, KnownHosts: t.KnownHosts,
		Passphrase: passphrasePrompt(), Warn: b.notify,
	}}
}

func (b *sshBackend) attach(ctx context.Context, stored json.RawMessage) (opened, error) {
	var kept sshKept
	if err := json.Unmarshal(stored, &kept); err != nil {
		return opened{}, err
	}
	host, err := ssh.Connect(ctx, b.restored(kept.Target).target)
	if err != nil {
		return opened{}, sshError(err)
	}
	e, err := host.Attach(ctx, kept.Ticket)
	if err != nil {
		return opened{}, errors.Join(sshError(err), host.Close())
	}
	if weakness := sandboxWeakness(e.Info()); weakness != "" && b.notify != nil {
		b.notify(weakness)
	}
	return opened{
		plain: &sshEnvironment{Environment: e, host: host, attached: true},
		kill:  func() {}, isolated: isolates(e.Info()), account: host.Route(), remote: true,
	}, nil
}

func (b *sshBackend) remove(ctx context.Context, session string, stored json.RawMessage) error {
	var kept sshKept // list names none as the user's own
	if err := json.Unmarshal(stored, &kept); err != nil {
		return err
	}
	b = b.restored(kept.Target)
	return b.withHost(ctx, func(h *ssh.Host) error { return h.Discard(ctx, session) })
}

func (b *sshBackend) list(ctx context.Context) (header []string, all []listed, err error) {
	err = b.withHost(ctx, func(h *ssh.Host) error {
		found, err := h.List(ctx)
		for _, l := range found {
			started := "-"
			if !l.Created.IsZero() {
				started = age(l.Created)
			}
			all = append(all, listed{session: l.Session, row: []string{
				l.Session, l.State, started, l.TTL.String(), l.Owner, l.Reason,
			}})
		}
		return err
	})
	return []string{"NAME", "STATE", "AGE", "TTL", "FROM", "NOTE"}, all, err
}

func (*sshBackend) session(name string) string { return name }

func (b *sshBackend) gc(
	ctx context.Context, opts remote.CollectOptions,
) (removed []remote.Collected, err error) {
	err = b.withHost(ctx, func(h *ssh.Host) error {
		removed, err = h.Collect(ctx, opts)
		return err
	})
	return removed, err
}

// withHost calls work with a connection to the remote host.
func (b *sshBackend) withHost(ctx context.Context, work func(*ssh.Host) error) (err error) {
	host, err := ssh.Connect(ctx, b.target)
	if err != nil {
		return sshError(err)
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	return work(host)
}

// demo runs in a temporary directory of the remote host.
func (b *sshBackend) demo() demoSupport {
	d := demoSupport{
		flags: []string{"helper-binary", "helper-dir"},
		missingGo: "which is not in the PATH of commands on the remote host;" +
			" \"sandboxagent exec --env=ssh --host HOST -- env\" prints it",
		prepare: b.prepareDemo,
	}
	for _, f := range b.connectFlags() {
		d.flags = append(d.flags, f.Names()[0])
	}
	return d
}

// prepareDemo uploads the repository to a temporary directory, which remove removes.
func (b *sshBackend) prepareDemo(
	ctx context.Context, cfg *openConfig, _ string,
) (remove func() error, err error) {
	inHome := *cfg
	inHome.dir = ""
	e, err := b.open(ctx, inHome)
	if err != nil {
		return nil, err
	}
	dir := ""
	remove = func() error {
		var err error
		if dir != "" {
			err = e.plain.Remove(context.WithoutCancel(ctx), dir, env.RemoveOptions{Recursive: true})
		}
		return errors.Join(err, e.plain.Close())
	}
	mktemp := env.Command{Argv: []string{"mktemp", "-d", "/tmp/sandboxagent-demo-XXXXXX"}}
	made, res, err := env.Output(ctx, e.plain, mktemp, env.OutputOptions{})
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("mktemp: exit code %d: %s", res.ExitCode, oneLine(string(made.Stderr.Bytes())))
	}
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	dir = strings.TrimSuffix(string(made.Stdout.Bytes()), "\n")
	repository := path.Join(dir, filepath.Base(cfg.dir))
	if err := envtransfer.Upload(ctx, e.plain, cfg.dir, repository,
		envtransfer.UploadOptions{}); err != nil {
		return nil, errors.Join(err, remove())
	}
	cfg.dir = repository
	cfg.vars = append(cfg.vars, "GOTMPDIR="+dir, "GOCACHE="+dir+"/cache", "GOPATH="+dir+"/gopath")
	return remove, nil
}

// sshError turns mistakes of the user into usageErrors and adds flags that help.
func sshError(err error) error {
	var config *ssh.ConfigError
	var key *ssh.HostKeyError
	var login *ssh.AuthError
	var dir *ssh.HelperDirError
	switch {
	case errors.As(err, &config) && config.Field == "StrictHostKeyChecking":
		return usagef("%s: %s (--accept-new-host-key accepts unknown keys)", config.Field, config.Reason)
	case errors.As(err, &key) && key.Kind == ssh.HostKeyUnknown:
		return fmt.Errorf("%w; --accept-new-host-key adds it", err)
	case errors.As(err, &login) && len(login.Keys) == 0:
		return fmt.Errorf("%w; --identity FILE names a key", err)
	case errors.As(err, &login) && login.TooMany():
		return fmt.Errorf("%w; --identity FILE is tried first", err)
	case errors.As(err, &dir):
		return fmt.Errorf("%w; --helper-dir DIR names another one", err)
	}
	return remoteError(&sshBackend{}, err, nil)
}
