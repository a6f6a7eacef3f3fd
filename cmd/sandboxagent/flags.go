package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/vars"
)

// variable is the name of the environment variable that stands for a flag; one that is blank is as if it were not set.
func variable(flag string) []string {
	name := "SANDBOXAGENT_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	if value, set := os.LookupEnv(name); set && strings.TrimSpace(value) == "" {
		return nil
	}
	return []string{name}
}

// environmentFlags are the flags of all commands that act on an environment.
func environmentFlags(timeout string) []cli.Flag {
	return slices.Concat([]cli.Flag{
		&cli.StringFlag{Name: "env", Value: "local", Usage: "the `ENVIRONMENT` to act in: " + knownBackends(), EnvVars: variable("env")},
		&cli.StringFlag{Name: "workdir", Usage: "the `FOLDER` to work in (default: the current one; on a host the home folder)", EnvVars: variable("workdir")},
		&cli.StringSliceFlag{Name: "var", Usage: "set a variable for commands, `NAME=VALUE`; may be repeated", EnvVars: variable("var")},
		&cli.StringSliceFlag{Name: "pass-var", Usage: "let commands see the host's variable `NAME`; may be repeated, or A,B", EnvVars: variable("pass-var")},
		&cli.StringFlag{
			Name: "inherit-vars", Value: string(vars.Filtered),
			Usage: "which of the host's variables commands see: `MODE` is filtered (no secrets), all, core or none", EnvVars: variable("inherit-vars"),
		},
		&cli.BoolFlag{Name: "read-only", DisableDefaultText: true, Usage: "refuse writes and commands", EnvVars: variable("read-only")},
		&cli.DurationFlag{Name: "timeout", Usage: timeout, EnvVars: variable("timeout"), DefaultText: "none"},
		&cli.StringFlag{Name: "log", Usage: "append a record of each operation to `FILE`, as lines of JSON", EnvVars: variable("log")},
	}, uploadFlags(), remoteFlags(), networkFlags(), sandboxFlags(), containerFlags(), hostFlags(), hostHelperFlags())
}

// onlyFor refuses flags that nothing would obey in an environment.
func onlyFor(c *cli.Context, backend string) error {
	for _, group := range []struct {
		flags    []cli.Flag
		backends []string
	}{
		{remoteFlags(), []string{"docker", "ssh"}},
		{networkFlags(), []string{"docker", "local", "ssh"}},
		{sandboxFlags(), []string{"local", "ssh"}},
		{containerFlags(), []string{"docker"}},
		{hostFlags(), []string{"ssh"}},
		{hostHelperFlags(), []string{"ssh"}},
	} {
		for _, f := range group.flags {
			if name := f.Names()[0]; c.IsSet(name) && !slices.Contains(group.backends, backend) {
				return usagef("--%s is for --env=%s; in the environment %q nothing would obey it", name, strings.Join(group.backends, " and --env="), backend)
			}
		}
	}
	return nil
}

func patchFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name: "patch", Usage: "write what changed in the working folder to `FILE`, for git apply; also after a failure", EnvVars: variable("patch"),
		},
		&cli.BoolFlag{
			Name: "apply", DisableDefaultText: true, EnvVars: variable("apply"),
			Usage: "make the changes in the working folder of the host too, unless something failed or the folder has changed meanwhile",
		},
	}
}

// readPatchFlags reads the patchFlags, for an environment.
func readPatchFlags(c *cli.Context, backend string) (patchSettings, error) {
	s := patchSettings{file: c.String("patch"), apply: c.Bool("apply")}
	if s.apply && worksInPlace(backend) {
		return s, usagef("--apply: the environment %s works in the folder itself", backend)
	}
	return s, checkPatchFlag(s.file)
}

// checkPatchFlag reports as a usageError why a patch cannot be written to file, which may be empty.
func checkPatchFlag(file string) error {
	folder := filepath.Dir(file)
	if _, err := os.Stat(folder); file != "" && errors.Is(err, fs.ErrNotExist) {
		return usagef("--patch: the folder %s does not exist; make it first, or name a file in another folder", folder)
	}
	return checkPatch(file)
}

// environmentSettings are the values of the environmentFlags.
type environmentSettings struct {
	backend string
	options backendOptions
	// given are the names of the variables that the user named.
	given    []string
	readOnly bool
	// keep says that the environment stays in the end.
	keep    bool
	timeout time.Duration
	log     string
	// copyTree says that the working folder goes into an environment that is elsewhere, with those of its ignored files that
	// uploadIgnored names.
	copyTree      bool
	uploadIgnored []string
	uploads       []transfer
	downloads     []transfer
}

func (p *program) readEnvironmentFlags(c *cli.Context) (environmentSettings, error) {
	s := environmentSettings{
		backend:  c.String("env"),
		options:  backendOptions{dir: c.String("workdir"), vars: c.StringSlice("var")},
		readOnly: c.Bool("read-only"),
		keep:     c.Bool("keep"),
		timeout:  c.Duration("timeout"),
		log:      c.String("log"),
		copyTree: true, uploadIgnored: c.StringSlice("upload-ignored"),
	}
	var err error
	if err := onlyFor(c, s.backend); err != nil {
		return s, err
	}
	if s.options.remote, err = readRemoteFlags(c); err != nil {
		return s, err
	}
	if s.options.container, err = readContainerFlags(c); err != nil {
		return s, err
	}
	if s.options.target, err = p.readHostFlags(c); err != nil {
		return s, err
	}
	s.options.helperDir = c.String("helper-dir")
	if s.options.sandbox, err = readSandboxFlags(c); err != nil {
		return s, err
	}
	if err := s.readTransfers(c); err != nil {
		return s, err
	}
	if s.timeout < 0 {
		return s, usagef("--timeout %s is negative", s.timeout)
	}
	mode, err := vars.ParseMode(c.String("inherit-vars"))
	if err != nil {
		return s, usagef("--inherit-vars: %q is none of filtered, all, core, none", c.String("inherit-vars"))
	}
	s.options.inherit.Mode = mode
	for _, v := range s.options.vars {
		name, _, ok := strings.Cut(v, "=")
		if ok && name == "" {
			return s, usagef("--var: there is no name before the \"=\"; it is of the form NAME=VALUE")
		}
		if !ok || strings.ContainsRune(v, 0) {
			return s, usagef("--var %q is not of the form NAME=VALUE", name)
		}
		s.given = append(s.given, name)
	}
	for _, list := range c.StringSlice("pass-var") {
		for name := range strings.SplitSeq(list, ",") {
			if name == "" || strings.ContainsAny(name, "=\x00") {
				return s, usagef("--pass-var %q is no name of a variable; --var sets one", list)
			}
			s.options.inherit.Pass = append(s.options.inherit.Pass, name)
		}
	}
	s.given = slices.Concat(s.given, s.options.inherit.Pass)
	return s, nil
}
