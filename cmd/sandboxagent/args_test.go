package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

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
		{"run --yes task --model m", "run", "--yes --model m -- task", ""},
		{"run task --yes", "run", "--yes -- task", ""},
		{"run --yes=false task", "run", "--yes=false -- task", ""},
		{"run -", "run", "-- -", ""},
		{"run -yes task", "run", "-yes -- task", ""},
		{"--env local exec true", "exec", "--env local -- true", ""},
		{"--model run run run", "run", "--model run -- run", ""},
		{"exec -- ls -l", "exec", "-- ls -l", ""},
		{"exec a --timeout 1s -- --b -- -c", "exec", "--timeout 1s -- a --b -- -c", ""},
		{"exec --var -x=1 -- a", "exec", "--var -x=1 -- a", ""},
		{"exec --help", "exec", "--help", ""},
		{"-h", "", "--help", ""},
		{"tool shell --help", "tool", "--help shell", ""},
		{"run x -h --yes --model m", "run", "--help x", ""},
		{"version -h x", "version", "--help x", ""},
		{"exec -- ls --help", "exec", "-- ls --help", ""},
		{"run --model -h x", "run", "--model -h -- x", ""},
		{"-- run", "", "-- run", ""},
		{"exec ls -l", "exec", "", `unknown flag -l; put arguments that start with a dash after "--"`},
		{"run --mdel m t", "run", "", "unknown flag --mdel; did you mean --model?"},
		{"run --max-truns=3 t", "run", "", "unknown flag --max-truns; did you mean --max-turns?"},
		{"run --patch", "run", "", "--patch needs a value"},
		{"exec --patch -- ls", "exec", "", "--patch needs a value"},
		{
			"version --yes", "version", "",
			`unknown flag --yes; put arguments that start with a dash after "--"`,
		},
		{"list", "", "", `unknown command "list" (known: ` + strings.Join(commands, ", ") + ")"},
		{"env list", "env list", "--", ""},
		{"env gc --all --dry-run", "env gc", "--all --dry-run --", ""},
		{"--all env gc", "env gc", "--all --", ""},
		{"env --all gc", "env gc", "--all --", ""},
		{"image build --base x go node", "image build", "--base x -- go node", ""},
		{"image --help build", "image build", "--help", ""},
		{"image", "", "", `"image" needs a subcommand: list, build`},
		{"image -- build", "", "", `"image" needs a subcommand: list, build`},
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
