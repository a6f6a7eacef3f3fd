package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"
)

func TestParseCommandLine(t *testing.T) {
	app := (&program{}).app()
	var commands []string
	for _, c := range app.Commands {
		commands = append(commands, c.Name)
	}
	tests := []struct {
		args    string
		command string
		want    string
		err     string
	}{
		{"run task", "run", "-- task", ""},
		{"run --yes task --model m", "run", "--yes=true --model=m -- task", ""},
		{"run task --yes", "run", "--yes=true -- task", ""},
		{"run --yes=false task", "run", "--yes=false -- task", ""},
		{"run -", "run", "-- -", ""},
		{"run -yes task", "run", "--yes=true -- task", ""},
		{"--env local exec true", "exec", "--env=local -- true", ""},
		{"--model run run run", "run", "--model=run -- run", ""},
		{
			"run -m m -C d -o=json -e A=1 x", "run",
			"--model=m --workdir=d --output=json --var=A=1 -- x", "",
		},
		{"exec -e A=1 --var B=2 -- a", "exec", "--var=A=1 --var=B=2 -- a", ""},
		{"exec -it -- sh", "exec", "--interactive=true --tty=true -- sh", ""},
		{"exec -ti sh", "exec", "--tty=true --interactive=true -- sh", ""},
		{"env attach -it x", "env attach", "--interactive=true --tty=true -- x", ""},
		{"run -it x", "run", "", `unknown flag -it; put arguments that start with a dash after "--"`},
		{"exec ls -la", "exec", "", `unknown flag -la; put arguments that start with a dash after "--"`},
		{"exec -tC d", "exec", "", `unknown flag -tC; put arguments that start with a dash after "--"`},
		{"exec -- ls -l", "exec", "-- ls -l", ""},
		{"exec a --timeout 1s -- --b -- -c", "exec", "--timeout=1s -- a --b -- -c", ""},
		{"exec --var -x=1 -- a", "exec", "--var=-x=1 -- a", ""},
		{"exec --help", "exec", "--help", ""},
		{"-h", "", "--help", ""},
		{"tool shell --help", "tool", "--help shell", ""},
		{"run x -h --yes --model m", "run", "--help x", ""},
		{"version -h x", "version", "--help x", ""},
		{"exec -- ls --help", "exec", "-- ls --help", ""},
		{"run --model -h x", "run", "--model=-h -- x", ""},
		{"-- run", "", "-- run", ""},
		{"", "", "--", ""},
		{"exec ls -l", "exec", "", `unknown flag -l; put arguments that start with a dash after "--"`},
		{"run --mdel m t", "run", "", "unknown flag --mdel; did you mean --model?"},
		{"run -modl m t", "run", "", "unknown flag -modl; did you mean --model?"},
		{"run --max-truns=3 t", "run", "", "unknown flag --max-truns; did you mean --max-turns?"},
		{"run --patch", "run", "", "--patch needs a value"},
		{"exec --patch -- ls", "exec", "", "--patch needs a value"},
		{
			"version --yes", "version", "",
			`unknown flag --yes, which is a flag of run, batch, batch retry, session resume; put ` +
				`arguments that start with a dash after "--"`,
		},
		{"list", "", "", `unknown command "list" (known: ` + strings.Join(commands, ", ") + ")"},
		{"env list", "env list", "--", ""},
		{"env gc --all --dry-run", "env gc", "--all=true --dry-run=true --", ""},
		{"--all env gc", "env gc", "--all=true --", ""},
		{"env --all gc", "env gc", "--all=true --", ""},
		{"image build --base x go node", "image build", "--base=x -- go node", ""},
		{"image --help build", "image build", "--help", ""},
		{"image", "image", "--", ""},
		{"image --help", "image", "--help", ""},
		{"image -- build", "image", "-- build", ""},
		{
			"image burn", "", "",
			`unknown command "image burn"; the subcommands of "image" are list, build`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			l, err := parseCommandLine(app, strings.Fields(tt.args))
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff([]string{tt.command, tt.want, tt.err}, []string{
				l.command, l.text(err), text,
			}); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// text formats l for a comparison; empty after an error.
func (l commandLine) text(err error) string {
	switch {
	case err != nil:
		return ""
	case l.help:
		return strings.Join(append([]string{helpFlag}, l.rest...), " ")
	}
	return strings.Join(slices.Concat(l.flags, []string{"--"}, l.rest), " ")
}

// TestFlagKinds checks that a flag of several commands takes a value in all of them or in none, on
// which finding the command relies.
func TestFlagKinds(t *testing.T) {
	kinds := make(map[string]bool)
	for _, c := range (&program{}).app().Commands {
		for _, f := range c.Flags {
			for _, name := range f.Names() {
				if kind, ok := kinds[name]; ok && kind != takesValue(f) {
					t.Errorf("--%s of %s takes a value: %v", name, c.Name, !kind)
				}
				kinds[name] = takesValue(f)
			}
		}
	}
}

// TestRunAction checks the values of flags and arguments that an action gets.
func TestRunAction(t *testing.T) {
	p := &program{line: commandLine{
		command: "exec",
		flags: []string{
			"--var=A=1,2", "--pass-var= B \n", "--var=C=\xff", "--workdir=x", "--workdir=y", "--tty=true",
			"--timeout=90s",
		},
		rest: []string{"-x", "--", "y"},
	}}
	app := p.app()
	ran := false
	app.Command("exec").Action = func(c *cli.Context) error {
		ran = true
		for what, tt := range map[string]struct{ got, want any }{
			"var":       {c.StringSlice("var"), []string{"A=1,2", "C=\xff"}},
			"pass-var":  {c.StringSlice("pass-var"), []string{"B"}},
			"mount":     {c.StringSlice("mount"), []string(nil)},
			"workdir":   {c.String("workdir"), "y"},
			"timeout":   {c.Duration("timeout"), 90 * time.Second},
			"env":       {c.String("env"), "local"},
			"arguments": {c.Args().Slice(), []string{"-x", "--", "y"}},
			"set": {
				[]bool{c.IsSet("var"), c.IsSet("workdir"), c.IsSet("tty"), c.IsSet("mount"), c.IsSet("env")},
				[]bool{true, true, true, false, false},
			},
		} {
			if diff := cmp.Diff(tt.want, tt.got); diff != "" {
				t.Errorf("%s (-want +got): %s", what, diff)
			}
		}
		return nil
	}
	if err := p.runAction(t.Context(), app); err != nil || !ran {
		t.Errorf("ran %v, %v", ran, err)
	}
	for _, c := range app.Commands { // which runAction would ignore
		if c.Before != nil || c.After != nil || len(c.Subcommands) > 0 {
			t.Errorf("%s has more than an action", c.Name)
		}
	}
}

// TestVariables checks which variables stand for flags.
func TestVariables(t *testing.T) {
	for _, tt := range []struct {
		name, vars, args, want, err string
	}{
		{name: "a variable", vars: "MODEL=m", args: "run x", want: "--model=m -- x"},
		{name: "a flag goes before it", vars: "MODEL=m", args: "run -m n x", want: "--model=n -- x"},
		{
			name: "a flag that may be repeated goes before it", vars: "VAR=A=1",
			args: "exec -e B=2 a", want: "--var=B=2 -- a",
		},
		{name: "a blank variable", vars: "MODEL=", args: "run x", want: "-- x"},
		{name: "another command's", vars: "MODEL=m BASE=b", args: "exec a", want: "-- a"},
		{name: "another backend's", vars: "IMAGE=i HOST=h KEEP=true", args: "exec a", want: "-- a"},
		{
			name: "another backend's, selected by a flag", vars: "IMAGE=i HOST=h GIT=ro",
			args: "exec --env=ssh a", want: "--env=ssh --git=ro --host=h -- a",
		},
		{
			name: "another backend's, selected by a variable", vars: "ENV=docker IMAGE=i HOST=h",
			args: "exec a", want: "--env=docker --image=i -- a",
		},
		{
			name: "of the default backend of a command", vars: "HOST=h",
			args: "env list", want: "--",
		},
		{name: "an invalid one of another backend", vars: "CPUS=many", args: "exec a", want: "-- a"},
		{
			name: "excluded by a flag", vars: "ENV_ID=i VERBOSE=1", args: "run --env=local -q x",
			want: "--env=local --quiet=true -- x",
		},
		{name: "all", vars: "ALL=true", args: "env gc", want: "--"},
		{name: "without effect here", vars: "APPLY=true", args: "exec a", want: "-- a"},
		{
			name: "with effect there", vars: "APPLY=true INHERIT_VARS=core", args: "exec --env=docker a",
			want: "--env=docker --apply=true -- a",
		},
		{
			name: "an unknown backend", vars: "ENV=moon IMAGE=i", args: "exec a",
			want: "--env=moon --image=i -- a",
		},
		{
			name: "an invalid value", vars: "CPUS=many", args: "exec --env=docker a",
			err: `the variable SANDBOXAGENT_CPUS: "many" is not a number`,
		},
		{
			name: "an invalid flag", vars: "CPUS=2", args: "exec --env=docker --cpus=many a",
			err: `--cpus: "many" is not a number`,
		},
		{name: "no part in help", vars: "TIMEOUT=soon", args: "exec --help", want: "--help"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("HOME", t.TempDir()) // without a file
			for _, v := range strings.Fields(tt.vars) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv("SANDBOXAGENT_"+name, value)
			}
			app := (&program{}).app()
			l, err := parseCommandLine(app, strings.Fields(tt.args))
			if err == nil && !l.help {
				err = l.addSettings(app, programLine{})
			}
			l.nameSource(err)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if got := l.text(err); got != tt.want || text != tt.err {
				t.Errorf("got %q, error %q, want %q, error %q", got, text, tt.want, tt.err)
			}
		})
	}
}

func TestEmptyValues(t *testing.T) {
	app := (&program{}).app()
	for _, blank := range []string{"", "  ", "\t"} {
		for _, c := range app.Commands {
			for _, f := range c.Flags {
				name := f.Names()[0]
				switch f.(type) {
				case *cli.StringFlag, *cli.StringSliceFlag:
				default:
					continue
				}
				want := "--" + name + " is empty; give it a value or leave it out"
				for _, args := range [][]string{{c.Name, "--" + name, blank, "x"}, {c.Name, "--" + name + "=" +
					blank}} {
					_, err := parseCommandLine(app, args)
					var usage *usageError
					if !errors.As(err, &usage) || usage.Error() != want {
						t.Errorf("%q: %v", args, err)
					}
				}
			}
		}
	}
}

func FuzzParseCommandLine(f *testing.F) {
	app := (&program{}).app()
	f.Add("exec a --timeout 1s -- --b -- -c")
	f.Add("run - --yes --")
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, " ")
		l, err := parseCommandLine(app, args)
		if err != nil {
			return
		}
		// The arguments after "--" are the last ones, unchanged.
		if _, after, ok := strings.Cut(" "+line+" ", " -- "); ok {
			if !strings.HasSuffix(strings.Join(l.rest, " ")+" ", after) {
				t.Errorf("%q became %q", args, l.rest)
			}
		}
	})
}
