package ssh

import (
	"cmp"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// Defaults of Config.
const (
	DefaultTTL          = 60 * time.Second
	DefaultStartTimeout = 2 * time.Minute
)

// SessionVar is an environment variable of all commands of an environment: its name.
const SessionVar = "SANDBOXAGENT_SESSION"

// Config configures an environment on a host. Its zero value works in the user's home directory.
type Config struct {
	// WorkDir is the working directory, which must exist. A relative one, or one that begins with
	// "~/", is in the home directory, which is the default.
	WorkDir string
	// Vars are variables of every command, as "NAME=value".
	Vars []string
	// TTL is how long the helper lives without a client; 0 means DefaultTTL. It is rounded up to
	// milliseconds.
	TTL time.Duration
	// StartTimeout bounds Open on a connected host, including the upload of the helper; 0 means
	// DefaultStartTimeout.
	StartTimeout time.Duration
	// HelperDir is a directory of the host, named as WorkDir is, that the helper is put into; it
	// must allow execution. Empty means the user's cache directory, else /tmp.
	HelperDir string
	// Sandbox, if set, restricts commands as far as the host supports it; Environment.Info reports
	// the result. Its names are those of the host, named as WorkDir is.
	Sandbox *env.Sandbox
	// HelperProgram, if not zero, replaces the helper that "make build" embeds.
	HelperProgram HelperProgram
	// Session names the environment on the host; empty means a random name. It has lower-case
	// letters, digits and hyphens.
	Session string
	// Note, if set, gets one line for each unexpected thing that is no error.
	Note func(line string)
}

// HelperProgram is a program that calls sandboxd.Main, static and for Linux.
type HelperProgram struct {
	Path string
	// Args precede those of sandboxd.Main.
	Args []string
	// IfMissing uses the program only if no helper is embedded.
	IfMissing bool
}

var sessionPattern = lazyregexp.New(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Validate reports the first invalid field of c, as a *ConfigError.
func (c Config) Validate() error {
	_, err := c.complete()
	return err
}

// complete returns the configuration with its defaults, or the error of Validate.
func (c Config) complete() (Config, error) {
	bad := func(field, format string, args ...any) (Config, error) {
		return c, badConfig(field, format, args...)
	}
	c.TTL = cmp.Or(c.TTL, DefaultTTL)
	c.StartTimeout = cmp.Or(c.StartTimeout, DefaultStartTimeout)
	for _, v := range c.Vars {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" || strings.ContainsRune(v, 0) {
			return bad("var", "%q is not of the form NAME=value", name)
		}
	}
	switch {
	case strings.ContainsAny(c.WorkDir, "\x00\n"):
		return bad("working directory", "%q has an invalid character", c.WorkDir)
	case strings.ContainsAny(c.HelperDir, "\x00\n"):
		return bad("helper-dir", "%q has an invalid character", c.HelperDir)
	case c.TTL < 0:
		return bad("ttl", "%s is negative", c.TTL)
	case c.StartTimeout < 0:
		return bad("start timeout", "%s is negative", c.StartTimeout)
	case c.Session != "" && !sessionPattern().MatchString(c.Session):
		return bad("session", "%q does not have up to 63 lower-case letters, digits and hyphens",
			c.Session)
	}
	return c, nil
}
