package ssh

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/client"
	envvars "github.com/sandboxagent/sandboxagent/env/vars"
)

// launchScript starts the helper. It is sent to a shell, behind its variables.
//
//go:embed launch.sh
var launchScript string

// shellLine is the command line of a shell that reads a script from its standard input. Every login shell takes it.
const shellLine = "exec /bin/sh"

// maxRefused is how many logins in a row a host may refuse before one is not taken up again.
const maxRefused = 5

// Open opens an environment on the host, when it is ready. Errors are *ConfigError for what cannot be meant, *StartError,
// *ConnectError, *HostKeyError, *AuthError, fs.ErrClosed, or the end of ctx; in each case nothing stays behind on the host
// but the helper's file, or only until Config.TTL has passed if the connection was lost at the wrong moment.
func (h *Host) Open(ctx context.Context, c Config) (_ *Environment, err error) {
	c, err = c.check()
	if err != nil {
		return nil, err
	}
	if err := h.hold(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			h.release()
		}
	}()
	c.Session = cmp.Or(c.Session, strings.ToLower(rand.Text()))
	ctx, cancel := context.WithTimeoutCause(ctx, c.StartTimeout, &StartError{Host: h.String(), Err: fmt.Errorf("not ready within %s", c.StartTimeout)})
	defer cancel()
	if c.Helper == HelperOff {
		return h.openPortable(ctx, c)
	}
	e, err := h.openHelper(ctx, c)
	var unfit *unfitError
	if c.Helper == HelperAuto && errors.As(err, &unfit) && !insists(c.Sandbox) {
		c.note(unfit.Error() + "; the host's shell is used instead, which is slower and promises less")
		return h.openPortable(ctx, c)
	}
	return e, err
}

// insists reports whether there must be a sandbox.
func insists(s *env.Sandbox) bool { return s != nil && (s.Require || len(s.Enforce) > 0) }

// StartError means that there is a way to the host, but that no environment could be started there.
type StartError struct {
	// Host is the host with its user and port.
	Host string
	Err  error
}

func (e *StartError) Error() string { return "ssh: start on " + e.Host + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// isRefused reports whether a server does not open a channel.
func isRefused(err error) bool {
	var refused *gossh.OpenChannelError
	return errors.As(err, &refused)
}

// unfitError means that no helper can run on the host.
type unfitError struct{ err error }

func (e *unfitError) Error() string { return e.err.Error() }
func (e *unfitError) Unwrap() error { return e.err }

// place is where the helper of an environment runs.
type place struct {
	host    *Host
	ttl     time.Duration
	program string // the helper's file
	args    []string
	box     string // the sandbox, as text; empty if there is to be none
	folder  string
	first   *process // until it is used
	// session says that the server does not connect to sockets.
	session bool
	// refused is how often in a row the host has not let the user in.
	refused int
}

func (p *place) socket() string { return p.folder + "/s" }

// openHelper starts the helper, which it puts there first if need be.
func (h *Host) openHelper(ctx context.Context, c Config) (*Environment, error) {
	found, err := programs(c.HelperProgram)
	if err != nil {
		return nil, err
	}
	p := &place{host: h, ttl: c.TTL, args: found.args}
	if c.Sandbox != nil {
		if p.box, err = (helper.Box{Dir: c.WorkDir, Sandbox: *c.Sandbox}).Text(); err != nil {
			return nil, fmt.Errorf("ssh: %w", err)
		}
	}
	home, err := p.launch(ctx, c.Session, found)
	if err != nil {
		return nil, h.startError(ctx, err)
	}
	dir, err := workDir(home, c.WorkDir)
	if err != nil {
		return nil, errors.Join(err, p.first.Close())
	}
	vars := append([]string{SessionVar + "=" + c.Session}, c.Vars...)
	start, err := json.Marshal(helper.Start{Dir: dir, Vars: vars, Inherit: envvars.Core})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ssh: %w", err), p.first.Close())
	}
	first, token := p.first, rand.Text()
	client, err := client.Open(ctx, client.Config{Dial: p.dial, Token: token, Start: start, Redial: c.TTL})
	if err != nil {
		// Without a client its helper ends.
		_ = first.Close()
		if ctx.Err() == nil && errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w; it said %q", err, cleanText(first.said.String()))
		}
		return nil, h.startError(ctx, err)
	}
	e := newEnvironment(h, client, c)
	e.place, e.token = p, token
	return e, nil
}

// startError says that no environment could be started.
func (h *Host) startError(ctx context.Context, err error) error {
	var late *StartError
	var config *ConfigError
	if errors.As(err, &config) {
		return err
	}
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &late):
		return late
	case cause != nil:
		return fmt.Errorf("ssh: start on %s: %w", h, cause)
	}
	return &StartError{Host: h.String(), Err: err}
}

// workDir returns the absolute name of the working directory.
func workDir(home, dir string) (string, error) {
	if !path.IsAbs(home) && !path.IsAbs(dir) {
		return "", &ConfigError{Field: "working directory", Reason: fmt.Sprintf("the user has no home folder on the host (%q); name an absolute folder", home)}
	}
	return helper.Absolute(home, dir), nil
}

// launch starts the helper and returns the user's home folder. The process is p.first, which says no more.
func (p *place) launch(ctx context.Context, id string, found *candidates) (home string, err error) {
	sent := ""
	for range 3 {
		said, err := p.try(ctx, id, found, sent)
		if err != nil {
			return "", err
		}
		words := append(strings.Fields(said.last), "")
		switch {
		case words[0] == "run" && len(words) > 2:
			return said.home, nil
		case words[0] == "unfit":
			return "", &unfitError{fmt.Errorf("there is no helper for the host's system, %s", said.system)}
		case words[0] == "missing":
			return "", &unfitError{&helper.MissingError{OS: "linux", Arch: cleanText(words[1])}}
		case words[0] == "unverified":
			return "", &unfitError{errors.New("the host has none of sha256sum, openssl and shasum, with one of which the helper is verified")}
		case words[0] == "nowhere":
			folders := cleanText(strings.Join(strings.Fields(said.last)[1:], ", "))
			return "", &unfitError{fmt.Errorf("no folder on the host can hold the helper and let it be executed (%s)", folders)}
		case words[0] == "taken":
			return "", &ConfigError{Field: "session", Reason: fmt.Sprintf("there is an environment %q on the host already", id)}
		case words[0] == "send" && len(words) > 3 && sent == "":
			name, target, _ := strings.Cut(strings.TrimPrefix(said.last, "send "), " ")
			chosen, ok := found.named(name)
			if !ok || !path.IsAbs(target) {
				return "", fmt.Errorf("%w: the host's shell answers %q", env.ErrProtocol, cleanText(said.last))
			}
			if err := p.host.deliver(ctx, chosen, target); err != nil {
				return "", fmt.Errorf("send the helper to %s: %w", target, err)
			}
			sent = target
		case words[0] == "damaged":
			return "", errors.New("the helper was damaged on its way")
		default:
			return "", fmt.Errorf("%w: the host's shell answers %q", env.ErrProtocol, cleanText(said.last))
		}
	}
	return "", fmt.Errorf("%w: the host's shell does not know what it wants", env.ErrProtocol)
}

// report is what the script says.
type report struct {
	system, home string
	// last is the answer that says how it ended.
	last string
}

// try runs the script once. If it has started the helper, that is p.first.
func (p *place) try(ctx context.Context, id string, found *candidates, sent string) (r report, err error) {
	mark := newMark()
	vars := [][2]string{
		{"m", mark}, {"i", id}, {"t", strconv.FormatInt(int64((p.ttl+time.Millisecond-1)/time.Millisecond), 10) + "ms"}, {"g", quoteAll(found.args)}, {"u_f", sent}, {"b", ""},
	}
	if p.box != "" {
		vars[len(vars)-1][1] = quoteAll([]string{"--sandbox", p.box})
	}
	for _, arch := range []string{"amd64", "arm64"} {
		name, digest := found.of(arch)
		vars = append(vars, [2]string{"n_" + arch, name}, [2]string{"h_" + arch, digest})
	}
	var script strings.Builder
	for _, v := range vars {
		script.WriteString(v[0] + "=" + quote(v[1]) + "\n")
	}
	script.WriteString(launchScript)
	proc, err := p.host.start(ctx, shellLine)
	if err != nil {
		return r, err
	}
	stop := context.AfterFunc(ctx, func() { _ = proc.Close() })
	defer func() {
		if !stop() && err == nil {
			err = context.Cause(ctx)
		}
		if err != nil || !strings.HasPrefix(r.last, "run ") {
			_ = proc.Close()
		}
	}()
	go func() { _, _ = io.WriteString(proc.in, script.String()) }() // what it answers tells
	said := answers{p: proc, mark: mark}
	for {
		line, err := said.next()
		if err != nil {
			return r, err
		}
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "system":
			r.system = cleanText(rest)
		case "home":
			r.home = rest
		case "run":
			r.last = line
			// The folder's name has no space in it; that of the helper may.
			folder, program, ok := strings.Cut(rest, "/e-"+id+" ")
			if !ok || !path.IsAbs(folder) || !path.IsAbs(program) {
				return r, fmt.Errorf("%w: the host's shell answers %q", env.ErrProtocol, cleanText(line))
			}
			p.first, p.folder, p.program = proc, folder+"/e-"+id, program
			return r, nil
		default:
			r.last = line
			return r, nil
		}
	}
}

// dial returns a stream to the helper: first the one to the process that was started, then one to its socket. Calls do not
// overlap.
func (p *place) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	if first := p.first; first != nil {
		p.first = nil
		return first.stream(), nil
	}
	s, err := p.redial(ctx)
	var key *HostKeyError
	var login *AuthError
	switch {
	case errors.As(err, &key): // nobody else gets the token
		err = fmt.Errorf("%w: %w", env.ErrGone, err)
	case errors.As(err, &login): // who tries for ever is shut out
		if p.refused++; p.refused >= maxRefused {
			err = fmt.Errorf("%w: %w", env.ErrGone, err)
		}
	default:
		p.refused = 0
	}
	return s, err
}

func (p *place) redial(ctx context.Context) (io.ReadWriteCloser, error) {
	if !p.session {
		c, err := p.host.socket(ctx, p.socket())
		if err == nil {
			out := newOutput(c)
			return newStream(c, out, func() error { return errors.Join(out.Close(), c.Close()) }), nil
		}
		if !isRefused(err) {
			return nil, err
		}
	}
	// What the login prints comes before the mark.
	mark := newMark()
	argv := append([]string{p.program}, append(p.args[:len(p.args):len(p.args)], "dial", "--socket", p.socket())...)
	proc, err := p.host.start(ctx, "exec /bin/sh -c "+quote("echo; echo "+mark+` run; exec "$0" "$@"`)+" "+quoteAll(argv))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = proc.Close() })
	defer stop()
	if _, err := (&answers{p: proc, mark: mark}).next(); err != nil {
		return nil, errors.Join(err, proc.Close())
	}
	p.session = true
	return proc.stream(), nil
}

// newMark returns a word that nobody says by chance.
func newMark() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return "SANDBOXAGENT-" + hex.EncodeToString(b[:])
}

// quote makes one word of text for a shell: for those of the Bourne family, and for others as long as text has no
// backslash or exclamation mark.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	return strings.Join(quoted, " ")
}
