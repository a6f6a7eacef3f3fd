package main

import (
	"cmp"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/remote"
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
	} else if self, err := executable(); err == nil {
		o.Helper.Program, o.Helper.Args = self, []string{helperArgument}
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
			const remedy = "name its file: --helper-binary FILE"
			text = strings.ReplaceAll(text, missing.Error(), missing.Text(remedy))
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
