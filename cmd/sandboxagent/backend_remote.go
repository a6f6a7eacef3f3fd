package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/sandboxd"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// remoteFlags are the flags of backends whose environments a helper serves.
func remoteFlags() []cli.Flag {
	return []cli.Flag{
		&cli.DurationFlag{
			Name: "ttl", Category: groupRemote, DefaultText: remote.DefaultTTL.String(),
			Usage: "remove the environment this `DURATION` after its last client disconnects",
		},
		&cli.BoolFlag{
			Name: "keep", Category: groupRemote,
			Usage: "leave the environment running; it is removed --ttl after its last client disconnects",
		},
		&cli.StringFlag{
			Name: "helper-binary", Category: groupRemote, DefaultText: "the embedded one",
			Usage: "run the static program `FILE` as the helper, for platforms without an embedded one",
		},
	}
}

// parseRemoteFlags reads remoteFlags but --keep. notify receives lines for the user.
func parseRemoteFlags(c *cli.Context, notify func(string)) (remote.Options, error) {
	o := remote.Options{TTL: cmp.Or(c.Duration("ttl"), remote.DefaultTTL), Warn: notify}
	if c.IsSet("ttl") && c.Duration("ttl") == 0 {
		return o, usagef("--ttl is 0; leave it out for the default")
	}
	if o.Helper.Binary = c.String("helper-binary"); o.Helper.Binary != "" {
		if err := checkExists(o.Helper.Binary); err != nil {
			return o, usagef("--helper-binary: %s", err)
		}
	} else {
		o.Helper = sandboxd.Self()
	}
	return o, nil
}

// remoteError turns an invalid configuration into a usageError and names flags instead of the
// fields of the library. names has the fields that are not named like their flag.
func remoteError(b backend, err error, names map[string]string) error {
	var config *remote.ConfigError
	var missing *remote.MissingHelperError
	helperText := func(text string) string {
		if errors.As(err, &missing) {
			text = strings.ReplaceAll(text, missing.Error(), missingHelper(missing))
		}
		return text
	}
	switch {
	case errors.As(err, &config):
		name := names[config.Field]
		switch {
		case name != "":
		case config.Field == "helper":
			name = "--helper-binary"
		case config.Field == "var" || findFlag(b.flags(), config.Field) != nil:
			name = "--" + config.Field
		default:
			name = config.Field
		}
		return usagef("%s: %s", name, helperText(config.Reason))
	case errors.As(err, &missing):
		return errors.New(helperText(err.Error()))
	}
	return err
}

// missingHelper returns the message of an error with the remedies of this program.
func missingHelper(e *remote.MissingHelperError) string {
	hint := fmt.Sprintf("build one by \"CGO_ENABLED=0 GOOS=%s GOARCH=%s go install "+
		"%s/cmd/sandboxd@latest\" and name its file: --helper-binary FILE", e.OS, e.Arch, modulePath)
	if e.OS == runtime.GOOS && e.Arch == runtime.GOARCH {
		hint = fmt.Sprintf("install this program by \"CGO_ENABLED=0 go install "+
			"%s/cmd/sandboxagent@latest\", so that it can be the helper; or %s", modulePath, hint)
	}
	causes := strings.ReplaceAll(errors.Join(e.Errs...).Error(), "\n", "; ")
	return fmt.Sprintf("no helper for %s/%s: %s (%s)", e.OS, e.Arch, causes, hint)
}

// checkExists returns why a file cannot be found.
func checkExists(name string) error {
	_, err := os.Stat(name)
	return err
}

// remoteVars returns the variables of commands in a remote environment: those of --var, and those
// of the host that --pass-var names. Remote environments inherit no others.
func remoteVars(o openConfig) ([]string, error) {
	if o.inherit.Mode != vars.Filtered && o.inherit.Mode != "" {
		return nil, usagef("--inherit-vars has no effect here: remote commands inherit no variables of" +
			" the host (--pass-var passes single ones)")
	}
	var vars []string
	for _, name := range o.inherit.Pass {
		if value, ok := os.LookupEnv(name); ok {
			vars = append(vars, name+"="+value)
		}
	}
	return append(vars, o.vars...), nil
}

// within calls fn and waits for it for killTime at most.
func within(fn func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	timer := time.NewTimer(killTime)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
