package failure

import (
	"regexp"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// installers have patterns of messages about missing packages, and the commands that install them.
var installers = []struct {
	pattern func() *regexp.Regexp
	command string
}{
	{lazyregexp.New(`ModuleNotFoundError: No module named '(\w+)`), "python3 -m pip install"},
	{lazyregexp.New(`Cannot find (?:module|package) '((?:@[\w.-]+/)?\w[\w.-]*)'`), "npm install"},
	{lazyregexp.New(`no required module provides package ([\w./-]+)`), "go get"},
	{lazyregexp.New("can't find crate for `(\\w+)`"), "cargo add"},
	{lazyregexp.New(`cannot load such file -- (\w[\w-]*)`), "gem install"},
}

// noProgram matches the message of dash, bash and BusyBox, or of zsh, about a missing program.
var noProgram = lazyregexp.New(
	`(?m): (\w[\w.+-]*): (?:command )?not found$|: command not found: (\w[\w.+-]*)$`)

// missing returns a sentence about the package or program that a command lacks, and about its
// installation; empty if it lacks none. Exit and output are those of the command.
func missing(output string, exit int) string {
	if exit == 127 {
		if m := noProgram().FindStringSubmatch(output); m != nil {
			return m[1] + m[2] + " is not installed; use another program, or install it with the " +
				"package manager of the system, such as: apt-get install " + m[1] + m[2]
		}
		return "The program is not installed here; use another one."
	}
	for _, i := range installers {
		if m := i.pattern().FindStringSubmatch(output); m != nil {
			return m[1] + " was not found; if it is no part of this project, install the package that " +
				"has it, such as: " + i.command + " " + m[1]
		}
	}
	return ""
}
