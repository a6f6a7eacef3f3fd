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

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/client"
	envvars "github.com/sandboxagent/sandboxagent/env/vars"
)

// launchScript starts the helper. It is sent to a shell, after its variables.
//
//go:embed launch.sh
var launchScript string

const (
	// shellLine starts a shell that reads a script from stdin. Every login shell accepts it.
	shellLine = "exec /bin/sh"
	// maxRejected is how many logins in a row a host may reject before reconnecting stops.
	maxRejected = 5
)

// Open opens an environment on the host. Errors are *ConfigError, *StartError, *ConnectError,
// *HostKeyError, *AuthError, fs.ErrClosed, or the end of ctx. After an error nothing is left on the
// host but the helper's file; if the connection was lost at the wrong moment, until Config.TTL has
// passed.
func (h *Host) Open(ctx context.Context, c Config) (_ *Environment, err error) {
	if c, err = c.complete(); err != nil {
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
	ctx, cancel := context.WithTimeoutCause(ctx, c.StartTimeout,
		&StartError{Host: h.String(), Err: fmt.Errorf("not ready within %s", c.StartTimeout)})
	defer cancel()
	found, err := findPrograms(c.HelperProgram)
	if err != nil {
		return nil, err
	}
	p := &helperProcess{host: h, ttl: c.TTL, args: found.args, helperDir: c.HelperDir}
	if c.Sandbox != nil {
		if p.sandbox, err = (helper.Sandbox{Dir: c.WorkDir, Sandbox: *c.Sandbox}).Text(); err != nil {
			return nil, fmt.Errorf("ssh: %w", err)
		}
	}
	home, err := p.launch(ctx, c.Session, found)
	if err != nil {
		return nil, h.startError(ctx, err)
	}
	return h.serve(ctx, c, p, home)
}

// serve opens the environment behind a helper that was launched.
func (h *Host) serve(
	ctx context.Context, c Config, p *helperProcess, home string,
) (*Environment, error) {
	first := p.first
	dir, err := workDir(home, c.WorkDir)
	if err != nil {
		return nil, errors.Join(err, first.Close())
	}
	vars := append([]string{SessionVar + "=" + c.Session}, c.Vars...)
	start, err := json.Marshal(helper.Start{Dir: dir, Vars: vars, Inherit: envvars.Core})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ssh: %w", err), first.Close())
	}
	token := rand.Text()
	client, err := client.Open(ctx, client.Config{
		Dial: p.dial, Token: token, Start: start,
		Redial: c.TTL,
	})
	if err != nil {
		_ = first.Close() // its helper exits without a client
		if ctx.Err() == nil && errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w; it printed %q", err, cleanText(first.stderr.String()))
		}
		return nil, h.startError(ctx, err)
	}
	return newEnvironment(h, client, c, p, token), nil
}

// startError returns the error of Open.
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
		return "", badConfig("working directory", "the user has no home directory on the host (%q); "+
			"name an absolute one", home)
	}
	return helper.Absolute(home, dir), nil
}

// helperProcess is the helper of an environment, and how to connect to it.
type helperProcess struct {
	host      *Host
	ttl       time.Duration
	program   string // its file
	args      []string
	sandbox   string // as text; may be empty
	helperDir string // Config.HelperDir
	dir       string // holds its socket
	// first is the session that started it, until dial returns its stream.
	first *process
	// viaSession means that the server does not connect to sockets.
	viaSession bool
	// rejected counts failed logins in a row.
	rejected int
}

func (p *helperProcess) socket() string { return p.dir + "/s" }

// launch starts the helper, which it delivers first if necessary, and returns the user's home
// directory. The helper has read nothing yet.
func (p *helperProcess) launch(
	ctx context.Context, id string, found *programs,
) (home string, err error) {
	sent := ""
	for range 3 {
		r, err := p.try(ctx, id, found, sent)
		if err != nil {
			return "", err
		}
		words := append(strings.Fields(r.last), "")
		switch {
		case words[0] == "run" && len(words) > 2:
			return r.home, nil
		case words[0] == "unfit":
			return "", fmt.Errorf("the helper does not run on the host's system, %s", r.system)
		case words[0] == "missing":
			return "", &helper.MissingError{OS: "linux", Arch: cleanText(words[1])}
		case words[0] == "unverified":
			return "", errors.New("the host has none of sha256sum, openssl and shasum, which verify the " +
				"helper")
		case words[0] == "nowhere":
			return "", &HelperDirError{Dirs: strings.Fields(r.last)[1:]}
		case words[0] == "taken":
			return "", badConfig("session", "an environment %q exists on the host", id)
		case words[0] == "send" && len(words) > 3 && sent == "":
			arch, target, _ := strings.Cut(strings.TrimPrefix(r.last, "send "), " ")
			chosen, ok := found.byArch[arch]
			if !ok || !path.IsAbs(target) {
				return "", unexpected(r.last)
			}
			if err := p.host.deliver(ctx, chosen, target); err != nil {
				return "", fmt.Errorf("send the helper to %s: %w", target, err)
			}
			sent = target
		case words[0] == "damaged":
			return "", errors.New("the helper was damaged on its way")
		default:
			return "", unexpected(r.last)
		}
	}
	return "", unexpected("send")
}

// unexpected returns the error for an invalid answer of a script.
func unexpected(answer string) error {
	return fmt.Errorf("%w: the host's shell answers %q", env.ErrProtocol, cleanText(answer))
}

// launchReport holds the answers of the launch script.
type launchReport struct {
	system, home string
	last         string // the last answer
}

// try runs the launch script once. If the last answer is "run", p.first is the helper.
func (p *helperProcess) try(
	ctx context.Context, id string, found *programs, sent string,
) (r launchReport, err error) {
	mark := newMark()
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
	script := p.script(mark, id, found, sent)
	go func() { _, _ = io.WriteString(proc.in, script) }() // a failure ends the answers
	lines := answers{p: proc, mark: mark}
	for {
		line, err := lines.next()
		if err != nil {
			return r, err
		}
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "system":
			r.system = cleanText(rest)
			continue
		case "home":
			r.home = rest
			continue
		}
		r.last = line
		if word == "run" {
			// The directory's name has no space in it; that of the helper may.
			dir, program, ok := strings.Cut(rest, "/e-"+id+" ")
			if !ok || !path.IsAbs(dir) || !path.IsAbs(program) {
				return r, unexpected(line)
			}
			p.first, p.dir, p.program = proc, dir+"/e-"+id, program
		}
		return r, nil
	}
}

// script returns the launch script with its variables.
func (p *helperProcess) script(mark, id string, found *programs, sent string) string {
	sandbox := ""
	if p.sandbox != "" {
		sandbox = quoteAll([]string{"--sandbox", p.sandbox})
	}
	ttl := strconv.FormatInt(int64((p.ttl+time.Millisecond-1)/time.Millisecond), 10) + "ms"
	vars := [][2]string{
		{"m", mark}, {"i", id}, {"t", ttl}, {"g", quoteAll(found.args)}, {"b", sandbox}, {
			"hd",
			p.helperDir,
		}, {"u_f", sent},
	}
	for _, arch := range architectures {
		helper := found.byArch[arch]
		vars = append(vars, [2]string{"n_" + arch, helper.name}, [2]string{"h_" + arch, helper.digest})
	}
	var script strings.Builder
	for _, v := range vars {
		script.WriteString(v[0] + "=" + quote(v[1]) + "\n")
	}
	script.WriteString(launchScript)
	return script.String()
}

// dial returns a stream to the helper: at first over the session that started it, then to its
// socket. Calls must not overlap.
func (p *helperProcess) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	if first := p.first; first != nil {
		p.first = nil
		return first.stream(), nil
	}
	s, err := p.redial(ctx)
	var key *HostKeyError
	var login *AuthError
	switch {
	case errors.As(err, &key): // another host must not get the token
		err = fmt.Errorf("%w: %w", env.ErrGone, err)
	case errors.As(err, &login): // servers block clients that fail too often
		if p.rejected++; p.rejected >= maxRejected {
			err = fmt.Errorf("%w: %w", env.ErrGone, err)
		}
	default:
		p.rejected = 0
	}
	return s, err
}

func (p *helperProcess) redial(ctx context.Context) (io.ReadWriteCloser, error) {
	if !p.viaSession {
		c, err := p.host.socket(ctx, p.socket())
		if err == nil {
			out := newOutput(c)
			return newStream(c, out, func() error { return errors.Join(out.Close(), c.Close()) }), nil
		}
		if !isRefused(err) {
			return nil, err
		}
	}
	// The output of the login comes before the mark.
	mark := newMark()
	argv := append([]string{p.program}, append(p.args[:len(p.args):len(p.args)], "dial", "--socket",
		p.socket())...)
	proc, err := p.host.start(ctx, "exec /bin/sh -c "+quote("echo; echo "+mark+` run; exec "$0" "$@"`)+" "+quoteAll(argv))
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = proc.Close() })
	defer stop()
	if _, err := (&answers{p: proc, mark: mark}).next(); err != nil {
		return nil, errors.Join(err, proc.Close())
	}
	p.viaSession = true
	return proc.stream(), nil
}

// newMark returns a word that no output contains by chance.
func newMark() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return "SANDBOXAGENT-" + hex.EncodeToString(b[:])
}

// quote returns text as one word of a POSIX shell, and of other shells if text has no backslash or
// exclamation mark.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = quote(w)
	}
	return strings.Join(quoted, " ")
}
