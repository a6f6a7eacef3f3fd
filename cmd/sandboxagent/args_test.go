package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"
)

func TestArrange(t *testing.T) {
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
		{"exec --help", "exec", "--help --", ""},
		{"-h", "", "--help --", ""},
		{"tool shell --help", "tool", "--help -- shell", ""},
		{"run x -h --yes --model m", "run", "--help -- x", ""},
		{"version -h x", "version", "--help -- x", ""},
		{"exec -- ls --help", "exec", "-- ls --help", ""},
		{"run --model -h x", "run", "--model -h -- x", ""},
		{"-- run", "", "-- run", ""},
		{"exec ls -l", "exec", "", `there is no flag -l here; arguments that begin with a dash stand after "--"`},
		{"run --mdel m t", "run", "", "there is no flag --mdel; did you mean --model?"},
		{"run --max-truns=3 t", "run", "", "there is no flag --max-truns; did you mean --max-turns?"},
		{"run --patch", "run", "", "the flag --patch needs a value"},
		{"exec --patch -- ls", "exec", "", "the flag --patch needs a value"},
		{"version --yes", "version", "", `there is no flag --yes here; arguments that begin with a dash stand after "--"`},
		{"list", "list", "", `there is no command "list"; the commands are ` + strings.Join(commands, ", ")},
		{"env list", "env list", "--", ""},
		{"env gc --all --dry-run", "env gc", "--all --dry-run --", ""},
		{"--all env gc", "env gc", "--all --", ""},
		{"env --all gc", "env gc", "--all --", ""},
		{"image build --base x go node", "image build", "--base x -- go node", ""},
		{"image --help build", "image build", "--help --", ""},
		{"image", "image", "", `something is missing behind "image"; there is image list, image build`},
		{"image -- build", "image", "", `something is missing behind "image"; there is image list, image build`},
		{"image burn", "image burn", "", `there is no command "image burn"; there is image list, image build`},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			command, got, err := arrange(app, strings.Fields(tt.args))
			text := ""
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff([]string{tt.command, tt.want, tt.err}, []string{command, strings.Join(got, " "), text}); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
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
				for _, args := range [][]string{{c.Name, "--" + name, blank, "x"}, {c.Name, "--" + name + "=" + blank}} {
					_, _, err := arrange(app, args)
					var usage *usageError
					if !errors.As(err, &usage) || usage.Error() != want {
						t.Errorf("%q: %v", args, err)
					}
				}
			}
		}
	}
}

func FuzzArrange(f *testing.F) {
	app := (&program{}).app()
	f.Add("exec a --timeout 1s -- --b -- -c")
	f.Add("run - --yes --")
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, " ")
		_, got, err := arrange(app, args)
		if err != nil {
			return
		}
		// What stands after "--" in the arguments stands, as it is, at the end.
		if _, after, ok := strings.Cut(" "+line+" ", " -- "); ok {
			if !strings.HasSuffix(strings.Join(got, " ")+" ", after) {
				t.Errorf("%q became %q", args, got)
			}
		}
	})
}

func TestDistance(t *testing.T) {
	tests := []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "ab", 2}, {"ab", "", 2}, {"model", "model", 0}, {"mobile", "model", 3}, {"mdel", "model", 1}, {"kitten", "sitting", 3},
	}
	for _, tt := range tests {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
