package remote

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env/internal/helper"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// Defaults of Options.
const (
	DefaultTTL          = 60 * time.Second
	DefaultStartTimeout = 2 * time.Minute
)

// Options are the settings that all backends have.
type Options struct {
	// Vars are variables of every command, as "NAME=value".
	Vars []string
	// TTL is how long the environment lives without a client; 0 means DefaultTTL. It is rounded up
	// to milliseconds.
	TTL time.Duration
	// StartTimeout bounds the start, with the delivery of the helper; 0 means DefaultStartTimeout.
	StartTimeout time.Duration
	// Helper names programs that may serve besides the embedded helpers.
	Helper Helper
	// Session names the environment: up to 63 lower-case letters, digits and hyphens. The default is
	// random.
	Session string
	// Warn, if set, is called with one line for each unexpected condition that is no error.
	Warn func(line string)
}

var sessionPattern = lazyregexp.New(`^[a-z0-9][a-z0-9-]{0,62}$`)

// IsSession reports whether a name is a valid Options.Session.
func IsSession(name string) bool { return sessionPattern().MatchString(name) }

// Complete returns the options with their defaults, or a *ConfigError for the first invalid field.
// It is for backends; backend is the name of the calling one.
func (o Options) Complete(backend string) (Options, error) {
	bad := func(field, format string, args ...any) (Options, error) {
		return o, BadConfig(backend, field, format, args...)
	}
	for _, v := range o.Vars {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" || strings.ContainsRune(v, 0) {
			return bad("var", "%q is not of the form NAME=value", name)
		}
	}
	switch {
	case o.TTL < 0:
		return bad("ttl", "%s is negative", o.TTL)
	case o.StartTimeout < 0:
		return bad("start timeout", "%s is negative", o.StartTimeout)
	case o.Session != "" && !IsSession(o.Session):
		return bad("session", "%q does not consist of up to 63 lower-case letters, digits and hyphens",
			o.Session)
	}
	if o.Helper.Binary != "" {
		if _, err := helper.Arch(o.Helper.Binary); err != nil {
			return o, &ConfigError{Backend: backend, Field: "helper", Reason: err.Error(), Err: err}
		}
	}
	o.TTL = cmp.Or(o.TTL, DefaultTTL)
	if part := o.TTL % time.Millisecond; part > 0 {
		o.TTL += time.Millisecond - part
	}
	o.StartTimeout = cmp.Or(o.StartTimeout, DefaultStartTimeout)
	o.Session = cmp.Or(o.Session, strings.ToLower(rand.Text()))
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	return o, nil
}

// Helper names programs that may serve as the helper besides those that "make build" embeds. The
// zero value names none: a platform without an embedded helper takes one that the Go toolchain
// builds from the source of this module.
type Helper struct {
	// Binary is a file with a helper: a program that calls sandboxd.Main, static and for the
	// platform of the environment. No other is used if it is set.
	Binary string
	// Program is such a file too, often the running program. It is used where no helper is embedded,
	// if it is static and for the right platform.
	Program string
	// Args precede the arguments of sandboxd.Main in Binary and Program.
	Args []string
	// NoBuild keeps the Go toolchain from building a helper.
	NoBuild bool
	// Cache is the directory for helpers that were built; empty means the user's cache directory.
	Cache string
}

// Resolve returns the helper for a platform, which is named as by the Go toolchain: Binary, the
// embedded one, Program, or one that it builds. If it finds none, the error is a
// *MissingHelperError. A build takes up to 5 minutes, less with an earlier end of ctx.
func (h Helper) Resolve(ctx context.Context, goos, goarch string) (*Program, error) {
	p, err := helper.Source(h).Resolve(ctx, goos, goarch)
	return (*Program)(p), err
}

// MissingHelperError reports that no helper for a platform was found.
type MissingHelperError = helper.MissingError

// Program is an executable file that serves as the helper. Helper.Resolve returns it.
type Program struct {
	// Name is a file name with the platform and the digest.
	Name string
	// Digest is the SHA-256 of the file in hexadecimal.
	Digest string
	// Args precede the arguments of sandboxd.Main.
	Args []string
	// Open returns the content, which the caller closes.
	Open func() (io.ReadCloser, error)
}

// maxProgram bounds the size of a helper, in bytes.
const maxProgram = 128 << 20

// Content returns the content of the program.
func (p *Program) Content() ([]byte, error) {
	r, err := p.Open()
	if err != nil {
		return nil, err
	}
	defer r.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(io.LimitReader(r, maxProgram+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("helper: %w", err)
	case len(content) > maxProgram:
		return nil, fmt.Errorf("helper: more than %d bytes", maxProgram)
	}
	return content, nil
}

// ExitGone is the exit code of Program.Dial if no helper listens on the socket: the environment has
// ended.
const ExitGone = 3

// Serve returns the command line that serves an environment on stdin and stdout. Name is the path
// of the program. With a socket, which is a path or "@name", the helper serves later clients on it,
// and outlives its streams by ttl; without one the socket and ttl are empty.
func (p *Program) Serve(name, socket string, ttl time.Duration) []string {
	argv := append([]string{name}, p.Args...)
	argv = append(argv, "serve")
	if socket != "" {
		argv = append(argv, "--socket", socket, "--ttl", ttl.String())
	}
	return argv
}

// Dial returns the command line that connects stdin and stdout to the socket of a helper. Further
// arguments are those of the command "sandboxd dial".
func (p *Program) Dial(name, socket string, args ...string) []string {
	argv := append([]string{name}, p.Args...)
	return append(append(argv, "dial", "--socket", socket), args...)
}
