package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// Values of --sandbox.
const (
	sandboxAuto    = "auto"
	sandboxRequire = "require"
	sandboxOff     = "off"
)

// sandboxFlags are the flags of environments that put a sandbox around what runs on a machine as it is.
func sandboxFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "sandbox", Value: sandboxAuto, Usage: "whether commands run in a sandbox: `MODE` is auto (the best that there is, or none), require or off", EnvVars: variable("sandbox")},
		&cli.StringSliceFlag{Name: "allow-write", Usage: "let commands in the sandbox change `PATH` too; may be repeated", EnvVars: variable("allow-write")},
		&cli.StringSliceFlag{Name: "allow-read", Usage: "let commands in the sandbox read `PATH`, which would be hidden; may be repeated", EnvVars: variable("allow-read")},
		&cli.StringSliceFlag{Name: "enforce", Usage: "fail unless the sandbox enforces `PROMISE`, such as hidden-processes; may be repeated, or A,B", EnvVars: variable("enforce")},
	}
}

// sandboxOptions are the values of the sandboxFlags.
type sandboxOptions struct {
	mode string
	env.Sandbox
}

// wanted reports whether there is to be a sandbox.
func (o sandboxOptions) wanted() bool { return o.mode == sandboxAuto || o.mode == sandboxRequire }

// promises are what can be insisted on.
var promises = []env.Promise{
	env.Isolation, env.ConfinedWrites, env.HiddenSecrets, env.NoNetwork, env.HiddenSockets, env.HiddenProcesses, env.NoNewRights, env.KeptHooks,
}

// readSandboxFlags reads the sandboxFlags, and whether there is a network.
func readSandboxFlags(c *cli.Context) (o sandboxOptions, err error) {
	o.mode = c.String("sandbox")
	backend := c.String("env")
	switch o.mode {
	case sandboxAuto, sandboxOff:
	case sandboxRequire:
		o.Require = true
	default:
		return o, usagef("--sandbox: %q is none of auto, require, off", o.mode)
	}
	switch network := c.String("network"); network {
	case "":
	case "none":
		o.Enforce = append(o.Enforce, env.NoNetwork)
	case "full":
		o.Network = true
	default:
		return o, usagef("--network: %q is none of none, full", network)
	}
	for _, list := range []struct {
		flag string
		into *[]string
	}{{"allow-write", &o.Write}, {"allow-read", &o.Read}} {
		for _, name := range c.StringSlice(list.flag) {
			if name == "" {
				return o, usagef("--%s: a path is missing", list.flag)
			}
			if backend != "local" { // it is a name there
				*list.into = append(*list.into, name)
				continue
			}
			abs, err := filepath.Abs(name)
			if err == nil {
				_, err = os.Stat(abs)
			}
			if err != nil {
				return o, usagef("--%s: %s; it must exist", list.flag, err)
			}
			*list.into = append(*list.into, abs)
		}
	}
	for _, list := range c.StringSlice("enforce") {
		for name := range strings.SplitSeq(list, ",") {
			p, err := readPromise(name)
			if err != nil {
				return o, err
			}
			o.Enforce = append(o.Enforce, p)
		}
	}
	if o.mode == sandboxOff && (backend == "local" || backend == "ssh") {
		for _, flag := range []string{"allow-write", "allow-read", "enforce", "network"} {
			if c.IsSet(flag) {
				return o, usagef("--%s: there is no sandbox that could obey it (--sandbox=off)", flag)
			}
		}
	}
	if state, err := stateDir(); err == nil && state != "" && backend == "local" {
		o.Hide = append(o.Hide, state)
	}
	return o, nil
}

func readPromise(name string) (env.Promise, error) {
	var known []string
	for _, p := range promises {
		if string(p) == name {
			return p, nil
		}
		known = append(known, string(p))
	}
	return "", usagef("--enforce: %q is none of %s", name, strings.Join(known, ", "))
}

// isolates reports whether an environment keeps a model from what is not its business, so that nobody need be asked.
func isolates(info env.Info) bool {
	return info.Strength(env.ConfinedWrites) == env.Enforced && info.Strength(env.HiddenSecrets) == env.Enforced
}

// sandboxNote tells what became of a sandbox, where that is less than the best, and which promises that does not keep; empty if
// it is not.
func sandboxNote(info env.Info) string {
	guarantee := func(p env.Promise) (found env.Guarantee, ok bool) {
		i := slices.IndexFunc(info.Guarantees, func(g env.Guarantee) bool { return g.Promise == p })
		if i < 0 {
			return env.Guarantee{}, false
		}
		return info.Guarantees[i], true
	}
	sandbox, ok := guarantee(env.Isolation)
	switch {
	case !ok:
		return ""
	case sandbox.Strength == env.Absent:
		return sandbox.By
	case sandbox.Strength == env.Enforced:
		if hooks, ok := guarantee(env.KeptHooks); ok && hooks.Strength == env.Absent {
			return "the sandbox does not keep what git runs outside (" + string(env.KeptHooks) + "): " + hooks.By
		}
		return ""
	}
	note := "the sandbox is not the strongest: " + sandbox.By
	if lost := notKept(info); len(lost) > 0 {
		note += "; not kept: " + strings.Join(lost, ", ")
	}
	return note
}

// notKept are the promises of which an environment says that it does not make them.
func notKept(info env.Info) (names []string) {
	for _, g := range info.Guarantees {
		if g.Strength == env.Absent {
			names = append(names, string(g.Promise))
		}
	}
	return names
}

// sandboxWord tells in a few words whether an environment is a sandbox.
func sandboxWord(guarantees []env.Guarantee) string {
	switch (env.Info{Guarantees: guarantees}).Strength(env.Isolation) {
	case env.Enforced:
		return "in a sandbox"
	case env.BestEffort:
		return "in a lesser sandbox"
	}
	return "without a sandbox"
}

// sandboxError tells mistakes of the user from what this machine cannot do.
func sandboxError(err error, o sandboxOptions) error {
	var unable *local.SandboxError
	switch {
	case errors.As(err, &unable):
		return err
	case errors.Is(err, fs.ErrInvalid):
		return invalidSandbox(err, o)
	}
	return workdirError(err)
}

// invalidSandbox names the flag with which a sandbox was asked for that is none. What cannot be changed in a sandbox, or must not
// be, was named with --allow-write.
func invalidSandbox(err error, o sandboxOptions) error {
	text := strings.TrimSuffix(err.Error(), ": "+fs.ErrInvalid.Error())
	if len(o.Write) > 0 && strings.Contains(text, " be changed") {
		return usagef("--allow-write: %s", text)
	}
	return usagef("%s (--workdir, --sandbox=off)", text)
}
