package main

import (
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/vars"
)

// defaultTTL is the default of --ttl.
const defaultTTL = time.Minute

// remoteFlags are the flags of backends whose environments a helper serves.
func remoteFlags() []cli.Flag {
	return []cli.Flag{
		&cli.DurationFlag{
			Name: "ttl", EnvVars: variable("ttl"), DefaultText: defaultTTL.String(),
			Usage: "remove the environment this `DURATION` after its last client disconnects",
		},
		&cli.BoolFlag{
			Name: "keep", DisableDefaultText: true, EnvVars: variable("keep"),
			Usage: "leave the environment running; it is removed --ttl after its last client disconnects",
		},
		&cli.StringFlag{
			Name: "helper-binary", EnvVars: variable("helper-binary"), DefaultText: "the embedded one",
			Usage: "run the static program `FILE` as the helper, for platforms without an embedded one",
		},
	}
}

// remoteOptions are the values of remoteFlags but --keep.
type remoteOptions struct {
	ttl          time.Duration
	helperBinary string
}

func parseRemoteFlags(c *cli.Context) (remoteOptions, error) {
	o := remoteOptions{ttl: c.Duration("ttl"), helperBinary: c.String("helper-binary")}
	if c.IsSet("ttl") && o.ttl == 0 {
		return o, usagef("--ttl is 0; leave it out for the default")
	}
	if o.ttl == 0 {
		o.ttl = defaultTTL
	}
	if o.helperBinary != "" {
		if err := checkExists(o.helperBinary); err != nil {
			return o, usagef("--helper-binary: %s", err)
		}
	}
	return o, nil
}

// helper returns the program to run as the helper. ifMissing reports that an embedded helper has
// precedence. Without path there is no such program.
func (o remoteOptions) helper() (path string, args []string, ifMissing bool) {
	if o.helperBinary != "" {
		return o.helperBinary, nil, false
	}
	self, err := executable()
	if err != nil {
		return "", nil, false
	}
	return self, []string{helperArgument}, true
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
