package ssh

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// Scripts that are sent to a shell, after their variables.
var (
	//go:embed launch.sh
	launchScript string
	//go:embed dial.sh
	dialScript string
)

// maxRejected is how many logins in a row a host may reject before reconnecting stops.
const maxRejected = 5

// Open opens an environment on the host. Errors are *ConfigError, *OpenError, *ConnectError,
// *HostKeyError, *AuthError, fs.ErrClosed, or the end of ctx. After an error nothing is left on the
// host but the helper's file and what CreateWorkDir made; if the connection was lost at the wrong
// moment, until Config.TTL has passed.
func (h *Host) Open(ctx context.Context, c Config) (_ *Environment, err error) {
	if c, err = c.check(); err != nil {
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
	ctx, cancel := context.WithTimeoutCause(ctx, c.StartTimeout,
		h.openError(fmt.Errorf("not ready within %s", c.StartTimeout)))
	defer cancel()
	l, err := h.newLaunch(ctx, c)
	if err == nil {
		err = l.run(ctx)
	}
	var e *Environment
	if err == nil {
		e, err = l.serve(ctx)
	}
	var config *ConfigError
	var start *OpenError
	switch cause := context.Cause(ctx); {
	case err == nil:
		return e, nil
	case errors.As(err, &config):
		return nil, err
	case errors.As(cause, &start):
		return nil, start
	case cause != nil:
		return nil, fmt.Errorf("ssh: start on %s: %w", h, cause)
	}
	return nil, h.openError(err)
}

// openError returns an *OpenError.
func (h *Host) openError(err error) error {
	return &OpenError{Backend: backend, Object: "an environment on " + h.String(), Err: err}
}

// helperProcess is the helper of an environment, and how to connect to it.
type helperProcess struct {
	host    *Host
	program *remote.Program
	file    string // of the program on the host
	dir     string // holds its socket
	// viaSession means that the server does not connect to sockets.
	viaSession bool
	// rejected counts failed logins in a row.
	rejected int
}

func (p *helperProcess) socket() string { return p.dir + "/s" }

// launch starts the helper of an environment.
type launch struct {
	host    *Host
	config  Config
	sandbox string // as text; may be empty
	// programs are the helpers that are available without a build, by the Go name of the processor.
	programs map[string]*remote.Program
	// sent is the file of a helper that was just delivered.
	sent string

	// The results: the first stream of the helper, which has read nothing yet, the helper, and the
	// user's home directory.
	first  *process
	helper *helperProcess
	home   string
	system string
}

// likely are the processors whose helpers the first attempt offers.
var likely = []string{"amd64", "arm64"}

func (h *Host) newLaunch(ctx context.Context, c Config) (*launch, error) {
	l := &launch{host: h, config: c, programs: make(map[string]*remote.Program)}
	if c.Sandbox != nil {
		var err error
		l.sandbox, err = helper.Sandbox{Dir: c.WorkDir, Sandbox: *c.Sandbox}.Text()
		if err != nil {
			return nil, err
		}
	}
	available := c.Helper
	available.NoBuild = true
	for _, arch := range likely {
		if p, err := available.Resolve(ctx, "linux", arch); err == nil {
			l.programs[arch] = p
		}
	}
	return l, nil
}

// run starts the helper, which it finds and delivers first if necessary.
func (l *launch) run(ctx context.Context) error {
	for range 4 {
		word, rest, err := l.try(ctx)
		if err != nil {
			return err
		}
		switch word {
		case "run":
			return nil
		case "unfit":
			return fmt.Errorf("the helper does not run on the host's system, %s", l.system)
		case "missing":
			if l.programs[rest] != nil {
				return unexpected(word)
			}
			if l.programs[rest], err = l.config.Helper.Resolve(ctx, "linux", rest); err != nil {
				return err
			}
		case "unverified":
			return errors.New("the host has none of sha256sum, openssl and shasum, which verify the " +
				"helper")
		case "nowhere":
			return &HelperDirError{Dirs: strings.Fields(rest)}
		case "taken":
			return badConfig("session", "an environment %q exists on the host", l.config.Session)
		case "send":
			arch, target, _ := strings.Cut(rest, " ")
			p := l.programs[arch]
			if p == nil || !path.IsAbs(target) || l.sent != "" {
				return unexpected(word + " " + rest)
			}
			if err := l.host.deliver(ctx, p, target); err != nil {
				return fmt.Errorf("send the helper to %s: %w", target, err)
			}
			l.sent = target
		case "unmade":
			return badConfig("working directory", "the host cannot make %s: %s", l.config.WorkDir,
				cleanText(rest))
		case "damaged":
			return errors.New("the helper was damaged on its way")
		default:
			return unexpected(word + " " + rest)
		}
	}
	return unexpected("send")
}

// unexpected returns the error for an invalid answer of a script.
func unexpected(answer string) error {
	return fmt.Errorf("%w: the host's shell answers %q", env.ErrProtocol, cleanText(answer))
}

// try runs the launch script once and returns its last answer. If its word is "run", the helper was
// started.
func (l *launch) try(ctx context.Context) (word, rest string, err error) {
	p, err := l.host.runScript(ctx, l.vars(), launchScript, func(line string) (bool, error) {
		switch word, rest, _ = strings.Cut(line, " "); word {
		case "system":
			l.system = cleanText(rest)
			return false, nil
		case "home":
			l.home = rest
			return false, nil
		case "run":
			// ARCH DIR FILE; the directory's name has no space in it, that of the file may.
			arch, names, _ := strings.Cut(rest, " ")
			name := "/e-" + l.config.Session
			dir, file, ok := strings.Cut(names, name+" ")
			if !ok || !path.IsAbs(dir) || !path.IsAbs(file) || l.programs[arch] == nil {
				return true, unexpected(line)
			}
			l.helper = &helperProcess{
				host: l.host, program: l.programs[arch], file: file, dir: dir + name,
			}
		}
		return true, nil
	})
	if err == nil && word == "run" {
		l.first = p
	} else if err == nil {
		_ = p.Close()
	}
	return word, rest, err
}

// vars returns the variables of the launch script.
func (l *launch) vars() [][2]string {
	c, sandbox := l.config, ""
	if l.sandbox != "" {
		sandbox = quoteAll([]string{"--sandbox", l.sandbox})
	}
	create := ""
	if c.CreateWorkDir {
		create = c.WorkDir
	}
	vars := [][2]string{
		{"i", c.Session},
		{"t", fmt.Sprintf("%dms", c.TTL.Milliseconds())},
		{"b", sandbox},
		{"hd", c.HelperDir},
		{"w", create},
		{"u_f", l.sent},
	}
	for arch, p := range l.programs {
		vars = append(vars, [2]string{"n_" + arch, p.Name}, [2]string{"h_" + arch, p.Digest},
			[2]string{"g_" + arch, quoteAll(p.Args)})
	}
	return vars
}

// serve opens the environment behind the helper.
func (l *launch) serve(ctx context.Context) (*Environment, error) {
	dir, err := workDir(l.home, l.config.WorkDir)
	if err != nil {
		return nil, errors.Join(err, l.first.Close())
	}
	c := l.helper.connection(l.config.TTL)
	c.Session, c.TTL, c.Stream = l.config.Session, l.config.TTL, l.first.stream()
	c.Dir, c.Inherit = dir, vars.Core
	c.Vars = append([]string{SessionVar + "=" + c.Session}, l.config.Vars...)
	served, err := remote.Open(ctx, c)
	if err != nil {
		if ctx.Err() == nil && errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w; it printed %q", err, cleanText(l.first.stderr.String()))
		}
		return nil, err
	}
	return &Environment{served: served, helper: l.helper}, nil
}

// workDir returns the absolute name of the working directory.
func workDir(home, dir string) (string, error) {
	if !path.IsAbs(home) && !path.IsAbs(dir) {
		return "", badConfig("working directory", "the user has no home directory on the host (%q); "+
			"name an absolute one", home)
	}
	return helper.Absolute(home, dir), nil
}

// dial returns a stream to the helper's socket.
func (p *helperProcess) dial(ctx context.Context) (io.ReadWriteCloser, error) {
	s, err := p.connect(ctx)
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

// connect is dial for one attempt.
func (p *helperProcess) connect(ctx context.Context) (io.ReadWriteCloser, error) {
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
	vars := [][2]string{{"c", quoteAll(p.program.Dial(p.file, p.socket()))}}
	proc, err := p.host.runScript(ctx, vars, dialScript, func(string) (bool, error) {
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	p.viaSession = true
	return proc.stream(), nil
}
