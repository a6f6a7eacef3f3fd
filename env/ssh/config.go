package ssh

import (
	"cmp"
	"fmt"
	"slices"
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

// SessionVar is a variable of all commands of an environment. It has the name of the session.
const SessionVar = "SANDBOXAGENT_SESSION"

// A HelperMode says whether the helper runs on the host.
type HelperMode string

// Helper modes.
const (
	HelperAuto    HelperMode = "auto"    // if there is one for the host, and a place to run it from
	HelperRequire HelperMode = "require" // or there is an error
	HelperOff     HelperMode = "off"     // everything goes through the host's shell
)

// Config says what an environment on a host is like. Its zero value works in the user's home folder, with the helper where
// that is possible.
type Config struct {
	// WorkDir is the folder to work in, which has to be there. A relative one, or one that begins with "~/", is looked for
	// in the home folder. Empty means that.
	WorkDir string
	// Vars are variables of every command, as "NAME=value".
	Vars []string
	// TTL is how long what runs on the host outlives a client that is gone; 0 means DefaultTTL. It is rounded up to
	// milliseconds.
	TTL time.Duration
	// StartTimeout bounds the start on a host that is connected, the sending of the helper included; 0 means
	// DefaultStartTimeout.
	StartTimeout time.Duration
	Helper       HelperMode // empty means HelperAuto
	// Sandbox, if set, is what commands run in, as far as the host has one; Environment.Info tells what became of it. Its names
	// are those of the host, and may be given as WorkDir is. It takes a helper.
	Sandbox *env.Sandbox
	// HelperProgram, if not the zero value, takes the place of the helper that "make build" embeds.
	HelperProgram HelperProgram
	// HelperDir is the directory on the host that the helper is stored in; empty means the user's
	// cache directory, else /tmp.
	HelperDir string
	// Session names the environment for those who look at the host; empty means a random name. Lower-case letters, digits
	// and hyphens.
	Session string
	// Note, if set, gets one line for each thing that is not as one might expect and is no error.
	Note func(line string)
}

// HelperProgram is a program that calls sandboxd.Main, static and for Linux.
type HelperProgram struct {
	Path string
	// Args come before those that sandboxd.Main gets.
	Args []string
	// IfMissing uses the program only where no helper is embedded.
	IfMissing bool
}

var sessionPattern = lazyregexp.New(`^[a-z0-9][a-z0-9-]{0,62}$`)

// Check returns why the configuration cannot be meant, a *ConfigError, as Open would without asking the host.
func (c Config) Check() error {
	_, err := c.check()
	return err
}

// check returns the configuration with its defaults, or what Check returns.
func (c Config) check() (Config, error) {
	bad := func(field, format string, args ...any) (Config, error) {
		return c, &ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	c.Helper = cmp.Or(c.Helper, HelperAuto)
	c.TTL = cmp.Or(c.TTL, DefaultTTL)
	c.StartTimeout = cmp.Or(c.StartTimeout, DefaultStartTimeout)
	for _, v := range c.Vars {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" || strings.ContainsRune(v, 0) {
			return bad("var", "%q is not of the form NAME=value", name)
		}
	}
	switch {
	case !slices.Contains([]HelperMode{HelperAuto, HelperRequire, HelperOff}, c.Helper):
		return bad("helper", "%q is none of auto, require, off", c.Helper)
	case c.Helper == HelperOff && insists(c.Sandbox):
		return bad("helper", "without a helper there is no sandbox")
	case strings.ContainsAny(c.WorkDir, "\x00\n"):
		return bad("working directory", "%q has a character that no name here may have", c.WorkDir)
	case c.TTL < 0 || c.StartTimeout < 0:
		return bad("ttl", "a negative time")
	case c.Session != "" && !sessionPattern().MatchString(c.Session):
		return bad("session", "%q is not made of up to 63 lower-case letters, digits and hyphens", c.Session)
	}
	return c, nil
}

// note tells the caller of something that is no error.
func (c Config) note(line string) {
	if c.Note != nil {
		c.Note(line)
	}
}
