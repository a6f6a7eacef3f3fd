package main

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/policy"
)

// onlyReads returns a function that returns an error for a command of an environment unless it
// certainly changes nothing: by the analysis of its text and the policy read-only.
func onlyReads(info env.Info) func(env.Command) error {
	rules := policy.Preset("read-only")
	return func(cmd env.Command) error {
		script, shell, err := scriptOf(info, cmd)
		if err != nil {
			return err
		}
		d := rules.Decide(policy.Request{
			Tool: "shell", Class: policy.ClassShell, Subject: script, WorkDir: info.WorkDir,
		}.WithShell(shell))
		if d.Action == policy.Allow {
			return nil
		}
		text := "nothing here keeps commands from changing files, and this one may"
		for _, s := range d.Steps {
			if s.Action != policy.Allow {
				text += fmt.Sprintf("; %s %s: %s", s.Permission, s.Subject, s.Reason)
			}
		}
		return errors.New(text)
	}
}

// scriptOf returns a command as a script, and the shell that runs it.
func scriptOf(info env.Info, cmd env.Command) (script, shell string, err error) {
	if cmd.Dir != "" && path.Clean(cmd.Dir) != info.WorkDir {
		return "", "", errors.New("it runs in another directory than the working directory")
	}
	vars := make([]string, len(cmd.Vars))
	for i, v := range cmd.Vars {
		if vars[i], err = syntax.Quote(v, syntax.LangPOSIX); err != nil {
			return "", "", err
		}
		vars[i] = "export " + vars[i] + "\n"
	}
	n := len(info.Shell)
	if n > 0 && len(cmd.Argv) == n+1 && slices.Equal(cmd.Argv[:n], info.Shell) {
		return strings.Join(vars, "") + cmd.Argv[n], info.Shell[0], nil
	}
	words := make([]string, len(cmd.Argv))
	for i, arg := range cmd.Argv {
		if words[i], err = syntax.Quote(arg, syntax.LangPOSIX); err != nil {
			return "", "", err
		}
	}
	return strings.Join(vars, "") + strings.Join(words, " "), "sh", nil
}
