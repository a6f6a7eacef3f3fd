package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/sandboxd"
)

// doctorTime bounds the checks, which run beside each other.
const doctorTime = 4 * time.Second

func (p *program) doctorCommand() *cli.Command {
	return &cli.Command{
		Usage:     "report what this machine has for sandboxagent, and what it lacks",
		ArgsUsage: "[flags]",
		UsageText: `
sandboxagent doctor
sandboxagent doctor || echo "not ready"`,
		Description: `
Prints a line for each part: its name, ok or missing, and what was found, or else a remedy. The
sandbox is that of commands in the current directory. It shows the names of variables with keys,
never the keys. Takes five seconds at most. Exit codes: 0 "run" works with --env=local, perhaps
after a question where no sandbox is; 1 it lacks a key, or cannot run commands.`,
		Action: p.action(p.doctor),
	}
}

// finding is the result of the check of one part.
type finding struct {
	ok   bool
	text string
}

func present(format string, args ...any) finding {
	return finding{true, fmt.Sprintf(format, args...)}
}

func missing(format string, args ...any) finding {
	return finding{false, fmt.Sprintf(format, args...)}
}

// doctor is the command doctor.
func (p *program) doctor(ctx context.Context, c *cli.Context) (int, error) {
	if err := noArguments(c); err != nil {
		return 0, err
	}
	limit := cmp.Or(p.patience, doctorTime)
	late := fmt.Errorf("no answer within %s", limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	works := make(chan bool, 1) // commands run on this machine
	parts := []struct {
		name  string
		check func(context.Context) finding
	}{
		{"version", func(context.Context) finding {
			v, rev := buildVersion()
			return present("%s, commit %s", v, rev)
		}},
		{"helper", findHelpers},
		{"sandbox", func(ctx context.Context) finding {
			f, err := findSandbox(ctx)
			works <- err == nil
			return f
		}},
		{"docker", findDocker},
		{"ssh", func(ctx context.Context) finding {
			return findProgram(ctx, "install OpenSSH's client, or --env=ssh reads no ~/.ssh/config",
				"ssh", "-V")
		}},
		{"git", func(ctx context.Context) finding {
			return findProgram(ctx, "install git, which models use in most repositories",
				"git", "--version")
		}},
		{"keys", func(context.Context) finding { return findKeys() }},
	}
	found := make([]chan finding, len(parts))
	for i, part := range parts {
		found[i] = make(chan finding, 1)
		go func() { found[i] <- part.check(ctx) }()
	}
	code := codeDone
	for i, part := range parts {
		f := missing("%s", late)
		select {
		case f = <-found[i]:
		case <-ctx.Done():
			select {
			case f = <-found[i]:
			case <-time.After(limit / 8): // it reports that the time is over
			}
		}
		state := "ok"
		if !f.ok {
			state = "missing"
		}
		if _, err := fmt.Fprintf(p.std.out, "%-8s %-8s %s\n", part.name, state,
			oneLine(f.text)); err != nil {
			return 0, err
		}
		if part.name == "keys" && !f.ok {
			code = codeFailed
		}
	}
	select {
	case ok := <-works:
		if ok {
			return code, nil
		}
	default:
	}
	return codeFailed, nil
}

// findHelpers looks for the helpers of containers and of hosts over SSH.
func findHelpers(ctx context.Context) finding {
	h := sandboxd.Self()
	h.NoBuild = true
	var have, lack []string
	for _, arch := range []string{"amd64", "arm64"} {
		if _, err := h.Resolve(ctx, "linux", arch); err == nil {
			have = append(have, "linux/"+arch)
		} else {
			lack = append(lack, "linux/"+arch)
		}
	}
	if len(lack) > 0 {
		return missing("none for %s, unless the Go toolchain builds it at the first use (\"make build\" "+
			"embeds them; --helper-binary FILE names one)", strings.Join(lack, ", "))
	}
	return present("for %s", strings.Join(have, ", "))
}

// findSandbox runs a command in the working directory as "run" does. The error is why that failed.
func findSandbox(ctx context.Context) (f finding, err error) {
	failed := func(err error) (finding, error) { return missing("no command runs: %s", err), err }
	b := &localBackend{
		sandbox: sandboxOptions{mode: sandboxAuto, Sandbox: env.Sandbox{GitReadOnly: true}},
	}
	o, err := b.open(ctx, openConfig{
		dir: ".", notify: func(string) {}, noteOnce: func(string, string) {},
	})
	if err != nil {
		return failed(err)
	}
	defer func() { err = errors.Join(err, o.plain.Close()) }()
	info := o.plain.Info()
	if len(info.Shell) > 0 {
		cmd := env.Command{Argv: append(slices.Clone(info.Shell), "exit 0")}
		res, err := o.plain.Exec(ctx, cmd)
		if err == nil && res.ExitCode != 0 {
			err = fmt.Errorf("%s: exit code %d", info.Shell[0], res.ExitCode)
		}
		if err != nil {
			return failed(err)
		}
	}
	text := sandboxWeakness(info)
	if info.Strength(env.Isolation) == env.Absent {
		return missing("%s; \"run\" asks before the model acts, or needs --yes", text), nil
	}
	for _, g := range info.Guarantees {
		if g.Name == env.Isolation && text == "" {
			text = g.By
		}
	}
	return present("%s", text), nil
}

// findDocker looks for the daemon.
func findDocker(ctx context.Context) finding {
	engine, err := docker.Connect(ctx, docker.Address{})
	if err != nil {
		return missing("%s", dockerError(err)) // which has a remedy
	}
	defer engine.Close() //nolint:errcheck // the connection has served
	version, err := engine.Version(ctx)
	if err != nil {
		return missing("%s", dockerError(err))
	}
	return present("version %s at %s", version, engine.Address())
}

// findProgram looks for a program and prints its version, the output of argv.
func findProgram(ctx context.Context, remedy string, argv ...string) finding {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = doctorTime / 16
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return missing("%s; %s", err, remedy)
	}
	return present("%s", out)
}

// findKeys returns the names of the variables that hold keys of models.
func findKeys() finding {
	set := slices.DeleteFunc(keyVariables(), func(name string) bool {
		return strings.TrimSpace(os.Getenv(name)) == ""
	})
	if len(set) == 0 {
		return missing("set one of %s; only openai-compatible/MODEL and script:FILE need no key",
			strings.Join(keyVariables(), ", "))
	}
	return present("%s", strings.Join(set, ", "))
}
