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

// variable returns the environment variable of a flag. A blank variable counts as not set.
func variable(flag string) []string {
	name := "SANDBOXAGENT_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	if value, set := os.LookupEnv(name); set && strings.TrimSpace(value) == "" {
		return nil
	}
	return []string{name}
}

// environmentFlags are the flags of all commands that act on an environment. timeout is the usage
// of --timeout.
func environmentFlags(timeout string) []cli.Flag {
	all := backends(nil)
	return append([]cli.Flag{
		&cli.StringFlag{
			Name: "env", Value: all[0].name(), EnvVars: variable("env"),
			Usage: "act in `ENVIRONMENT`: " + backendNames(all),
		},
		&cli.StringFlag{
			Name: "env-id", EnvVars: variable("env-id"),
			Usage: "act in the running environment `ID`, which stays; \"env list\" prints the IDs",
		},
		&cli.StringFlag{
			Name: "workdir", EnvVars: variable("workdir"),
			Usage: "work in `DIR` (default: the current directory; on a remote host the home directory)",
		},
		&cli.StringSliceFlag{
			Name: "var", EnvVars: variable("var"),
			Usage: "set an environment variable for commands, `NAME=VALUE`; may be repeated",
		},
		&cli.StringSliceFlag{
			Name: "pass-var", EnvVars: variable("pass-var"),
			Usage: "pass the host's environment variable `NAME` to commands; may be repeated, or A,B",
		},
		&cli.StringFlag{
			Name: "inherit-vars", Value: string(vars.Filtered), EnvVars: variable("inherit-vars"),
			Usage: "pass the host's environment variables to commands: `MODE` is filtered (no secrets)," +
				" all, core or none",
		},
		&cli.BoolFlag{
			Name: "read-only", DisableDefaultText: true, EnvVars: variable("read-only"),
			Usage: "reject writes and commands",
		},
		&cli.DurationFlag{
			Name: "timeout", Usage: timeout, EnvVars: variable("timeout"), DefaultText: "none",
		},
		&cli.StringFlag{
			Name: "log", EnvVars: variable("log"),
			Usage: "append a record of each operation to `FILE`, as JSON Lines",
		},
		&cli.StringSliceFlag{
			Name: "upload", EnvVars: variable("upload"),
			Usage: "first copy a file, or the content of a directory, into the directory TARGET of the" +
				" environment, `SOURCE[:TARGET]`; may be repeated",
		},
		&cli.StringSliceFlag{
			Name: "download", EnvVars: variable("download"),
			Usage: "at the end copy a file or directory of the environment into the directory TARGET," +
				" `SOURCE[:TARGET]`; may be repeated",
		},
	}, backendFlags()...)
}

// uploadIgnoredFlag is the flag of backends that copy the working directory.
func uploadIgnoredFlag() cli.Flag {
	return &cli.StringSliceFlag{
		Name: "upload-ignored", EnvVars: variable("upload-ignored"),
		Usage: "also upload files that git ignores and that match `PATTERN`; may be repeated",
	}
}

func patchFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name: "patch", EnvVars: variable("patch"),
			Usage: "write the changes to the working directory to `FILE`, for git apply; also after a " +
				"failure",
		},
		&cli.BoolFlag{
			Name: "apply", DisableDefaultText: true, EnvVars: variable("apply"),
			Usage: "apply the changes to the working directory of the host, unless something failed or " +
				"that" +
				" directory has changed meanwhile",
		},
	}
}

// parsePatchFlags reads patchFlags, for an environment of b.
func parsePatchFlags(c *cli.Context, b backend) (patchSettings, error) {
	s := patchSettings{file: c.String("patch"), apply: c.Bool("apply")}
	if s.apply && b.inPlace() {
		return s, usagef("--apply has no effect with --env=%s, which works in the directory itself",
			b.name())
	}
	return s, checkPatchFlag(s.file)
}

// checkPatchFlag reports as a usageError why a patch cannot be written to file, which may be empty.
func checkPatchFlag(file string) error {
	if file == "" {
		return nil
	}
	dir := filepath.Dir(file)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return usagef("--patch: the directory %s does not exist", dir)
	}
	if _, err := writableFile(file); err != nil {
		return usagef("--patch: %s", err)
	}
	return nil
}

// environmentSettings are the values of environmentFlags.
type environmentSettings struct {
	backend backend
	// existing is the environment to act in; nil means to open one.
	existing *keptFile
	config   openConfig
	// given are the names of the environment variables that the user named.
	given    []string
	readOnly bool
	// keep leaves the environment running at the end.
	keep    bool
	timeout time.Duration
	log     string
	// copyTree copies the working directory into an environment that is not in place, with those
	// ignored files that match uploadIgnored.
	copyTree           bool
	uploadIgnored      []string
	uploads, downloads []transfer
}

// parseBackend returns the backend that --env selects, with the values of its flags.
func (p *program) parseBackend(c *cli.Context) (backend, error) {
	b, err := findBackend(backends(p.notify), c.String("env"))
	if err != nil {
		return nil, err
	}
	if err := checkOwnership(c, b); err != nil {
		return nil, err
	}
	return b, b.parse(c)
}

func (p *program) parseEnvironmentFlags(c *cli.Context) (s environmentSettings, err error) {
	s = environmentSettings{
		config:   openConfig{dir: c.String("workdir"), vars: c.StringSlice("var")},
		readOnly: c.Bool("read-only"), keep: c.Bool("keep"),
		timeout: c.Duration("timeout"), log: c.String("log"),
		copyTree: true, uploadIgnored: c.StringSlice("upload-ignored"),
	}
	if id := c.String("env-id"); id != "" {
		err = p.selectExisting(c, &s, id)
	} else {
		s.backend, err = p.parseBackend(c)
	}
	if err != nil {
		return s, err
	}
	if err := s.parseTransfers(c); err != nil {
		return s, err
	}
	if s.timeout < 0 {
		return s, usagef("--timeout %s is negative", s.timeout)
	}
	return s, s.parseVars(c)
}

// parseVars reads --var, --pass-var and --inherit-vars.
func (s *environmentSettings) parseVars(c *cli.Context) (err error) {
	inherit := &s.config.inherit
	if inherit.Mode, err = vars.ParseMode(c.String("inherit-vars")); err != nil {
		return usagef("--inherit-vars: %q is not one of filtered, all, core, none",
			c.String("inherit-vars"))
	}
	for _, v := range s.config.vars {
		name, _, ok := strings.Cut(v, "=")
		if ok && name == "" {
			return usagef("--var: the name before \"=\" is empty; the form is NAME=VALUE")
		}
		if !ok || strings.ContainsRune(v, 0) {
			return usagef("--var %q is not of the form NAME=VALUE", name)
		}
		s.given = append(s.given, name)
	}
	for _, list := range c.StringSlice("pass-var") {
		for name := range strings.SplitSeq(list, ",") {
			if name == "" || strings.ContainsAny(name, "=\x00") {
				return usagef("--pass-var %q is not the name of an environment variable (--var sets one)", list)
			}
			inherit.Pass = append(inherit.Pass, name)
		}
	}
	s.given = slices.Concat(s.given, inherit.Pass)
	return nil
}
