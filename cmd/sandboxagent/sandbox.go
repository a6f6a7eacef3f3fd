package main

import (
	"io/fs"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// Values of --sandbox.
const (
	sandboxAuto    = "auto"
	sandboxRequire = "require"
	sandboxOff     = "off"
)

// networkFlag is the flag of backends that can disable the network of commands.
func networkFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "network", Category: groupSandbox, DefaultText: "none",
		Usage: "let commands reach `NETWORK`: none or full",
	}
}

// sandboxFlags are the flags of backends that put a sandbox around commands.
func sandboxFlags() []cli.Flag {
	return []cli.Flag{
		networkFlag(),
		&cli.StringFlag{
			Name: "sandbox", Category: groupSandbox, Value: sandboxAuto,
			Usage: "run commands in a sandbox: `MODE` is auto (the strongest available, or none), " +
				"require or off",
		},
		&cli.StringFlag{
			Name: "git", Category: groupSandbox, DefaultText: "ro for run, else rw",
			Usage: "let commands in the sandbox read (ro), or also change (rw), the repository of the " +
				"working directory: `MODE` is ro or rw",
		},
		&cli.StringSliceFlag{
			Name: "allow-write", Category: groupSandbox,
			Usage: "let commands in the sandbox change `PATH` too; may be repeated",
		},
		&cli.StringSliceFlag{
			Name: "allow-read", Category: groupSandbox,
			Usage: "let commands in the sandbox read `PATH`, which would be hidden; may be repeated",
		},
		&cli.StringFlag{
			Name: "sockets", Category: groupSandbox, DefaultText: "own",
			Usage: "let commands in the sandbox make unix `SOCKETS`: own or none",
		},
		enforceFlag(),
	}
}

// enforceFlag is the flag of backends that may lack a guarantee.
func enforceFlag() cli.Flag {
	return &cli.StringSliceFlag{
		Name: "enforce", Category: groupSandbox,
		Usage: "fail unless the sandbox enforces `GUARANTEE`: " + strings.Join(guaranteeNames(), ", ") +
			"; may be repeated, or A,B",
	}
}

// parseEnforce reads enforceFlag.
func parseEnforce(c *cli.Context) (all []env.GuaranteeName, err error) {
	for _, list := range c.StringSlice("enforce") {
		for name := range strings.SplitSeq(list, ",") {
			g, err := parseGuarantee(name)
			if err != nil {
				return nil, err
			}
			all = append(all, g)
		}
	}
	return all, nil
}

// sandboxOptions are the values of sandboxFlags.
type sandboxOptions struct {
	mode string
	env.Sandbox
}

// requested reports whether commands should run in a sandbox.
func (o sandboxOptions) requested() bool {
	return o.mode == sandboxAuto || o.mode == sandboxRequire
}

// report writes the weaknesses of the sandbox of an opened environment; subject names the sandbox.
func (o sandboxOptions) report(info env.Info, subject string, cfg openConfig) {
	if o.requested() {
		cfg.noteOnce(subject, sandboxWeakness(info))
	}
}

// enforceable are the guarantees that --enforce accepts.
var enforceable = []env.GuaranteeName{
	env.Isolation, env.ConfinedWrites, env.HiddenSecrets, env.NoNetwork, env.HiddenSockets,
	env.HiddenProcesses, env.NoNewRights, env.KeptHooks,
}

// parseSandboxFlags reads sandboxFlags.
func parseSandboxFlags(c *cli.Context) (o sandboxOptions, err error) {
	o.mode = c.String("sandbox")
	switch o.mode {
	case sandboxAuto, sandboxOff, "": // a command may lack the flag
	case sandboxRequire:
		o.Require = true
	default:
		return o, usagef("--sandbox: %q is not one of auto, require, off", o.mode)
	}
	switch network := c.String("network"); network {
	case "":
	case "none":
		o.Enforce = append(o.Enforce, env.NoNetwork)
	case "full":
		o.Network = true
	default:
		return o, usagef("--network: %q is not one of none, full", network)
	}
	switch sockets := c.String("sockets"); sockets {
	case "", "own":
	case "none":
		o.NoUnixSockets, o.Enforce = true, append(o.Enforce, env.HiddenSockets)
	default:
		return o, usagef("--sockets: %q is not one of own, none", sockets)
	}
	if c.Bool("read-only") && c.IsSet("allow-write") {
		return o, usagef("--allow-write has no effect with --read-only")
	}
	o.ReadOnly = c.Bool("read-only") && !c.IsSet("upload") // uploads go into the sandbox, too
	o.Write, o.Read = c.StringSlice("allow-write"), c.StringSlice("allow-read")
	enforce, err := parseEnforce(c)
	if err != nil {
		return o, err
	}
	o.Enforce = append(o.Enforce, enforce...)
	switch git := c.String("git"); git {
	case "":
		o.GitReadOnly = runsTask(c.Command.Name)
	case "ro", "rw":
		o.GitReadOnly = git == "ro"
	default:
		return o, usagef("--git: %q is not one of ro, rw", git)
	}
	for _, flag := range []string{
		"allow-write", "allow-read", "enforce", "git", "network", "sockets",
	} {
		if o.mode == sandboxOff && c.IsSet(flag) {
			return o, usagef("--%s has no effect with --sandbox=off", flag)
		}
	}
	return o, nil
}

func parseGuarantee(name string) (env.GuaranteeName, error) {
	if known := guaranteeNames(); !slices.Contains(known, name) {
		return "", usagef("--enforce: %q is not one of %s", name, strings.Join(known, ", "))
	}
	return env.GuaranteeName(name), nil
}

// guaranteeNames are the values of --enforce.
func guaranteeNames() (names []string) {
	for _, p := range enforceable {
		names = append(names, string(p))
	}
	return names
}

// isolates reports whether the sandbox of an environment is strong enough that a model needs no
// consent of the user.
func isolates(info env.Info) bool {
	return info.Strength(env.ConfinedWrites) == env.Enforced &&
		info.Strength(env.HiddenSecrets) == env.Enforced
}

// sandboxWeakness returns the state of a sandbox that is not the strongest, with the missing
// guarantees; else empty.
func sandboxWeakness(info env.Info) string {
	guarantee := func(p env.GuaranteeName) (found env.Guarantee, ok bool) {
		i := slices.IndexFunc(info.Guarantees, func(g env.Guarantee) bool { return g.Name == p })
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
		if _, reason, ok := strings.Cut(sandbox.By, "; no sandbox: "); ok {
			return "commands run without a sandbox: " + reason
		}
		return sandbox.By
	case sandbox.Strength == env.Enforced:
		if hooks, ok := guarantee(env.KeptHooks); ok && hooks.Strength == env.Absent {
			return "the sandbox does not protect the hooks of git (" + string(env.KeptHooks) + "): " +
				hooks.By
		}
		return ""
	}
	text := "the sandbox is not the strongest: " + sandbox.By
	if lost := notKept(info); len(lost) > 0 {
		text += "; missing guarantees: " + strings.Join(lost, ", ")
	}
	return text
}

// notKept are the guarantees that an environment reports as absent.
func notKept(info env.Info) (names []string) {
	for _, g := range info.Guarantees {
		if g.Strength == env.Absent {
			names = append(names, string(g.Name))
		}
	}
	return names
}

// sandboxWord describes the sandbox of an environment in a few words.
func sandboxWord(guarantees []env.Guarantee) string {
	switch (env.Info{Guarantees: guarantees}).Strength(env.Isolation) {
	case env.Enforced:
		return "in a sandbox"
	case env.BestEffort:
		return "in a lesser sandbox"
	}
	return "without a sandbox"
}

// invalidSandbox names the flag of an invalid sandbox. A path that a sandbox cannot or must not
// make writable came from --allow-write.
func invalidSandbox(err error, o sandboxOptions) error {
	text := strings.TrimSuffix(err.Error(), ": "+fs.ErrInvalid.Error())
	if len(o.Write) > 0 && strings.Contains(text, "a sandbox cannot allow changes") {
		return usagef("--allow-write: %s", text)
	}
	return usagef("%s (--workdir, --sandbox=off)", text)
}

// Messages of git and other programs about a write that a sandbox refuses.
var (
	refusedSetting = lazyregexp.New(`config file .*: (Read-only file system|Permission denied|` +
		`Operation not permitted|Device or resource busy)`)
	refusedWrite = lazyregexp.New(`Read-only file system`)
)

// noteRefusal notes once the flag that allows a write that the sandbox has refused. output is that
// of a failed command.
func (p *program) noteRefusal(info env.Info, output string) {
	text := "the sandbox kept a command from changing a file; --git rw lets commands commit, and " +
		"--allow-write PATH lets them change PATH"
	switch {
	case info.Strength(env.ConfinedWrites) == env.Absent,
		info.Strength(env.ReadOnlyFiles) != env.Absent: // the user asked for it
		return
	case refusedSetting().MatchString(output):
		text = "the sandbox keeps commands from changing git's settings, which can name programs; " +
			"change them outside, or with --sandbox=off"
	case !refusedWrite().MatchString(output):
		return
	}
	p.refusal.Do(func() { p.notify(text) })
}
