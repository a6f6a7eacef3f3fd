package main

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
)

// TestSandboxNote checks that the note of a weaker sandbox names the missing guarantees.
func TestSandboxNote(t *testing.T) {
	hooks := env.Guarantee{Name: env.KeptHooks, Strength: env.Absent, By: "nobody"}
	processes := env.Guarantee{Name: env.HiddenProcesses, Strength: env.Absent}
	sockets := env.Guarantee{Name: env.HiddenSockets, Strength: env.BestEffort}
	isolation := func(s env.Strength) env.Guarantee {
		return env.Guarantee{Name: env.Isolation, Strength: s, By: "a box"}
	}
	for name, test := range map[string]struct {
		guarantees []env.Guarantee
		want       string
	}{
		"nothing is said": {nil, ""},
		"the best":        {[]env.Guarantee{isolation(env.Enforced), sockets}, ""},
		"one beside links": {
			[]env.Guarantee{
				isolation(env.Enforced), sockets, hooks,
			}, "the sandbox does not protect the hooks of git (kept-hooks): nobody",
		},
		"none": {[]env.Guarantee{isolation(env.Absent)}, "a box"},
		"a lesser one": {
			[]env.Guarantee{processes, isolation(env.BestEffort), sockets, hooks},
			"the sandbox is not the strongest: a box; missing guarantees: hidden-processes, kept-hooks",
		},
		"one that keeps all": {
			[]env.Guarantee{isolation(env.BestEffort), sockets}, "the sandbox is not the strongest: a box",
		},
	} {
		if got := sandboxNote(env.Info{Guarantees: test.guarantees}); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestSandboxError checks that errors name the flag at fault.
func TestSandboxError(t *testing.T) {
	open := fmt.Errorf("a sandbox cannot allow changes of /: %w", fs.ErrInvalid)
	mode := fmt.Errorf("the mode of d keeps root out; change that, or work without a sandbox: %w",
		fs.ErrInvalid)
	write := sandboxOptions{Sandbox: env.Sandbox{Write: []string{"/"}}}
	for name, test := range map[string]struct {
		err     error
		options sandboxOptions
		want    string
		usage   bool
	}{
		"what may be written": {
			open, write, "--allow-write: a sandbox cannot allow changes of /", true,
		},
		"the directory": {
			mode, write, "the mode of d keeps root out; change that, or work without a sandbox " +
				"(--workdir, --sandbox=off)", true,
		},
		"nothing was named": {
			mode,
			sandboxOptions{},
			"the mode of d keeps root out; change that, or work without a sandbox (--workdir, " +
				"--sandbox=off)", true,
		},
		"the machine": {
			&local.SandboxError{Reasons: []error{open}}, write,
			"local: no sandbox works on this machine: a sandbox cannot allow changes of /: invalid " +
				"argument", false,
		},
	} {
		err := sandboxError(test.err, test.options)
		var usage *usageError
		if err.Error() != test.want || errors.As(err, &usage) != test.usage {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}
