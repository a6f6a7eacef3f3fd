package main

import (
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
)

func TestOnlyReads(t *testing.T) {
	t.Parallel()
	info := env.Info{WorkDir: "/w", Shell: []string{"/bin/bash", "-c"}}
	check := onlyReads(info)
	script := func(text string) env.Command {
		return env.Command{Argv: []string{"/bin/bash", "-c", text}}
	}
	with := func(cmd env.Command, dir string, vars ...string) env.Command {
		cmd.Dir, cmd.Vars = dir, vars
		return cmd
	}
	for name, tt := range map[string]struct {
		cmd  env.Command
		runs bool
	}{
		"reads":            {script("cat a | grep b && git status"), true},
		"writes":           {script("cat a >b"), false},
		"hides":            {script(`x=rm; $x a`), false},
		"argv reads":       {env.Command{Argv: []string{"cat", "a b", "$(rm x)"}}, true},
		"argv writes":      {env.Command{Argv: []string{"touch", "a"}}, false},
		"argv of a shell":  {env.Command{Argv: []string{"sh", "-c", "rm a"}}, false},
		"same directory":   {with(script("git status"), "/w/"), true},
		"other directory":  {with(script("cat a"), "/w/sub"), false},
		"harmless vars":    {with(script("cat a"), "", "A=b"), true},
		"variable of git":  {with(script("git diff"), "", "GIT_EXTERNAL_DIFF=touch a"), false},
		"variable of path": {with(env.Command{Argv: []string{"cat", "a"}}, "", "PATH=."), false},
		"newline in a variable": {
			with(script("cat a"), "", "A=b\nrm x"), false,
		},
	} {
		if err := check(tt.cmd); (err == nil) != tt.runs {
			t.Errorf("%s: %v, runs: %t", name, err, tt.runs)
		}
	}
	const reason = "nothing here keeps commands from changing files, and this one may; write b: "
	if err := check(script("cat a >b")); err == nil || !strings.HasPrefix(err.Error(), reason) {
		t.Errorf("the reason is %v", err)
	}
	windows := onlyReads(env.Info{WorkDir: "C:/w", Shell: []string{"C:/cmd.exe", "/c"}})
	if windows(env.Command{Argv: []string{"C:/cmd.exe", "/c", "dir"}}) == nil {
		t.Error("a command of a shell that is not understood runs")
	}
}
