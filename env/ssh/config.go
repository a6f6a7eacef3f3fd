package ssh

import (
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// SessionVar is an environment variable of all commands of an environment: its name.
const SessionVar = "SANDBOXAGENT_SESSION"

// Config configures an environment on a host. Its zero value works in the user's home directory.
type Config struct {
	// Options apply to all backends. StartTimeout bounds Open on a connected host.
	remote.Options

	// WorkDir is the working directory. A relative one, or one that starts with "~/", is in the home
	// directory, which is the default. It must exist, unless CreateWorkDir makes it with its missing
	// parents; it stays on the host.
	WorkDir       string
	CreateWorkDir bool
	// HelperDir is a directory of the host, named as WorkDir is, that the helper is put into; it
	// must allow execution. Empty means the user's cache directory, else /tmp.
	HelperDir string
	// Sandbox, if set, restricts commands as far as the host supports it; Environment.Info reports
	// the result. Its names are those of the host, named as WorkDir is.
	Sandbox *env.Sandbox
}

// Validate reports the first invalid field of c, as a *ConfigError.
func (c Config) Validate() error {
	_, err := c.check()
	return err
}

// check returns the configuration with its defaults, or the error of Validate.
func (c Config) check() (Config, error) {
	var err error
	if c.Options, err = c.Complete(backend); err != nil {
		return c, err
	}
	for field, name := range map[string]string{
		"working directory": c.WorkDir, "helper-dir": c.HelperDir,
	} {
		if strings.ContainsAny(name, "\x00\n") {
			return c, badConfig(field, "%q has an invalid character", name)
		}
	}
	return c, nil
}
