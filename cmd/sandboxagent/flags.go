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
	"github.com/sandboxagent/sandboxagent/policy/redact"
)

// environmentFlags are the flags of all commands that act on an environment. group and timeout are
// the group and the usage of --timeout.
func environmentFlags(group, timeout string) []cli.Flag {
	all := backends(nil)
	return append([]cli.Flag{
		&cli.StringFlag{
			Name: "env", Category: groupEnvironment, Value: all[0].name(),
			Usage: "act in `ENVIRONMENT`: " + backendNames(all),
		},
		&cli.StringFlag{
			Name: "env-id", Category: groupEnvironment,
			Usage: "act in the running environment `ID`, which stays; \"env list\" prints the IDs",
		},
		&cli.StringFlag{
			Name: "workdir", Aliases: []string{"C"}, Category: groupEnvironment,
			DefaultText: "the current directory; with ssh the home directory",
			Usage:       "work in `DIR`",
		},
		&cli.StringSliceFlag{
			Name: "var", Aliases: []string{"e"}, Category: groupEnvironment,
			Usage: "set the environment variable `NAME=VALUE` for commands; may be repeated",
		},
		&cli.StringSliceFlag{
			Name: "pass-var", Category: groupEnvironment,
			Usage: "pass the host's environment variable `NAME` to commands, also a secret; may be " +
				"repeated, or A,B",
		},
		&cli.StringFlag{
			Name: "inherit-vars", Category: groupEnvironment, Value: string(vars.Filtered),
			Usage: "pass the host's environment variables to commands of local: `MODE` is filtered (no " +
				"secrets), all, core or none",
		},
		&cli.BoolFlag{
			Name: "read-only", Category: groupEnvironment,
			Usage: "keep tools and commands from changing files",
		},
		&cli.DurationFlag{
			Name: "timeout", Category: group, Usage: timeout, DefaultText: "none",
		},
		&cli.BoolFlag{
			Name: "quiet", Aliases: []string{"q"}, Category: groupOutput,
			Usage: "show no progress and no notes, only errors and questions",
		},
		&cli.StringFlag{
			Name: "log", Category: groupOutput,
			Usage: "append a record of each operation to `FILE`, as JSON Lines",
		},
		&cli.StringSliceFlag{
			Name: "upload", Category: groupFiles,
			Usage: "first copy a file, or the content of a directory, into the directory TARGET of the" +
				" environment, `SOURCE[:TARGET]`; may be repeated",
		},
		&cli.StringSliceFlag{
			Name: "download", Category: groupFiles,
			Usage: "at the end copy a file or directory of the environment into the directory TARGET," +
				" `SOURCE[:TARGET]`; may be repeated",
		},
	}, backendFlags()...)
}

// noUploadFlag names the flag that keeps the working directory from being uploaded.
const noUploadFlag = "no-upload"

// uploadIgnoredFlag is the flag of backends that copy the working directory.
func uploadIgnoredFlag() cli.Flag {
	return &cli.StringSliceFlag{
		Name: "upload-ignored", Category: groupContainer,
		Usage: "also upload files that git ignores and that match `PATTERN`; may be repeated",
	}
}

func patchFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name: "patch", Category: groupFiles,
			Usage: "write the changes to the working directory to `FILE`, for git apply; also after a " +
				"failure",
		},
		&cli.BoolFlag{
			Name: "apply", Category: groupFiles,
			Usage: "apply the changes of docker and k8s to the working directory of the host, unless " +
				"something failed or that directory has changed meanwhile",
		},
	}
}

// parsePatchFlags reads patchFlags, for the environment of e.
func parsePatchFlags(c *cli.Context, e environmentSettings) (patchSettings, error) {
	s := patchSettings{file: c.String("patch"), apply: c.Bool("apply") && e.existing == nil}
	if s.apply && e.backend.inPlace() {
		return s, usagef("--apply has no effect with --env=%s, which works in the directory itself",
			e.backend.name())
	}
	if s.apply && e.noUpload {
		return s, usagef("--%s excludes --apply, since no file of this machine is changed; --patch "+
			"writes the changes to a file", noUploadFlag)
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
	// redactor replaces secrets in the log; may be nil.
	redactor *redact.Redactor
	// copyTree copies the working directory into an environment that is not in place, with those
	// ignored files that match uploadIgnored.
	copyTree      bool
	uploadIgnored []string
	// noUpload prevents copyTree.
	noUpload           bool
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
	if err := b.parse(c); err != nil {
		return nil, err
	}
	if p.part != nil {
		p.part.adapt(b)
	}
	return b, nil
}

func (p *program) parseEnvironmentFlags(c *cli.Context) (s environmentSettings, err error) {
	p.quiet = c.Bool("quiet")
	s = environmentSettings{
		config:   openConfig{dir: c.String("workdir"), vars: c.StringSlice("var")},
		readOnly: c.Bool("read-only"), keep: c.Bool("keep"),
		timeout: c.Duration("timeout"), log: c.String("log"),
		copyTree: true, uploadIgnored: c.StringSlice("upload-ignored"),
		noUpload: c.Bool(noUploadFlag),
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
