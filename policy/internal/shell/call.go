package shell

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// call analyses a simple command.
func (a *analyzer) call(c *syntax.CallExpr, stdin *string, st *state) {
	for _, x := range c.Assigns {
		a.assignment(x, st)
	}
	args := a.fields(c.Args, st)
	if len(args) == 0 {
		return
	}
	if len(args) == len(c.Args) && (args[0] == "[" || args[0] == "test") {
		for i, w := range c.Args {
			if name, _ := variable(w); args[i] == string(Split) && syntax.ValidName(name) {
				a.tested = append(a.tested, name)
				args[i] = string(Hole)
			}
		}
	}
	a.command(args, stdin, st)
}

// systemDirs are directories whose programs count by their names.
var systemDirs = []string{
	"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin",
}

// command analyses the words of a simple command. The shell finds functions and builtins first.
func (a *analyzer) command(args []string, stdin *string, st *state) {
	name := args[0]
	if st.functions[name] && !strings.ContainsAny(name, holes) {
		a.names(args[1:], st)
		if a.moves {
			st.dir = string(Hole)
		}
		return
	}
	if run := findBuiltin(name); run != nil {
		a.names(args[1:], st)
		run(a, args, stdin, st)
		return
	}
	a.program(args, stdin, st)
}

// programName returns the name of a program as rules have it: without its directory if that is one
// of the system, and with a hole in place of a directory that may be one.
func programName(word string, st *state) string {
	if !strings.Contains(word, "/") {
		return word
	}
	base := path.Base(word)
	dir := path.Dir(inDir(st.dir, word))
	switch {
	case path.IsAbs(dir) && slices.Contains(systemDirs, dir):
		return base
	case strings.ContainsAny(dir, holes),
		strings.ContainsAny(word, holes) && !strings.ContainsAny(base, holes),
		strings.HasPrefix(dir, "../") && slices.Contains([]string{"bin", "sbin"}, path.Base(dir)):
		return string(Hole) + base
	}
	return word
}

// program analyses a command that is a program: no function, and no builtin that differs from the
// program of its name.
func (a *analyzer) program(args []string, stdin *string, st *state) {
	if a.depth++; a.depth > maxDepth {
		a.obscure("commands that are nested too deep")
		a.depth--
		return
	}
	defer func() { a.depth-- }()
	args = append([]string{programName(args[0], st)}, args[1:]...)
	if strings.ContainsAny(args[0], holes) {
		a.obscure("a command whose name is made at run time")
	}
	name := args[0]
	a.names(args[1:], st)
	a.elsewhere(name, args, stdin, st)
	// git-push may be git's own, or another program.
	if sub, ok := strings.CutPrefix(path.Base(name), "git-"); ok && sub != "" {
		a.program(slices.Concat([]string{"git", sub}, args[1:]), stdin, st)
	}
	if w, ok := wrappers[name]; ok {
		a.wrapper(w, args, st)
		return
	}
	switch name {
	case "sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "rbash":
		a.shell(args, stdin, st)
		return
	case "busybox", "toybox":
		a.add(args, len(args) > 1)
		if len(args) > 1 {
			a.program(args[1:], stdin, st)
		}
		return
	case "find":
		a.find(args, st)
	case "tree":
		for _, word := range args[1:] { // its options take their values from the words that follow
			if strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "--") && word != "-o" &&
				strings.ContainsAny(word, "oR") {
				a.obscure("the options of tree")
			}
		}
	case "git":
		args = a.git(args, st)
	case "sed", "gsed":
		a.sed(args)
	case "awk", "gawk", "mawk", "nawk":
		a.awk(args)
	case "xargs":
		a.xargs(args, st)
		return
	case "parallel":
		a.parallel(args, st)
		return
	case "watch":
		a.watch(args, st)
		return
	}
	a.runs(args)
	a.writes(args, st)
	a.add(args, false)
}

// elsewhere analyses /opt/bin/env as env, too: a program outside of the system's directories may
// be a system's program. A program in the working directory may be a script of the project, so that
// only the files count that a system's program would write.
func (a *analyzer) elsewhere(name string, args []string, stdin *string, st *state) {
	base := path.Base(name)
	if base == name || strings.ContainsAny(base, holes) {
		return
	}
	named := append([]string{base}, args[1:]...)
	file := inDir(st.dir, name)
	if !path.IsAbs(file) && !strings.HasPrefix(file, "../") && !strings.ContainsAny(file, holes) {
		a.writes(named, st)
		return
	}
	if _, ok := wrappers[base]; ok || slices.Contains(runners, base) {
		a.program(named, stdin, st)
		return
	}
	a.runs(named)
	a.writes(named, st)
}

// runners are the programs whose arguments program analyses.
var runners = []string{
	"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "rbash", "busybox", "toybox", "find", "tree",
	"git", "sed", "gsed", "awk", "gawk", "mawk", "nawk", "xargs", "parallel", "watch",
}

// add adds a command to the result.
func (a *analyzer) add(args []string, wraps bool) {
	a.found.Commands = append(a.found.Commands, Command{Args: slices.Clone(args), Wraps: wraps})
}

// builtin adds a command that has no effect outside the shell.
func (a *analyzer) builtin(args []string) {
	a.found.Commands = append(a.found.Commands, Command{Args: slices.Clone(args), Builtin: true})
}

// names adds arguments that may be names of files, and the values of options.
func (a *analyzer) names(args []string, st *state) {
	for _, word := range args {
		if option, value, ok := strings.Cut(word, "="); ok && !strings.ContainsAny(option, holes+"/") {
			if rest, ok := strings.CutPrefix(value, "~/"); ok && a.options.Home != "" {
				value = a.options.Home + "/" + rest
			}
			a.name(strings.TrimLeft(value, "@<"), st)
		}
		switch {
		case !strings.HasPrefix(word, "-"):
			a.name(strings.TrimPrefix(word, "@"), st)
		case len(word) > 2 && word[1] != '-':
			a.name(strings.TrimPrefix(word[2:], "@"), st) // the value of an option
		}
	}
}

// builtin is a command that a shell runs itself.
type builtin func(a *analyzer, args []string, stdin *string, st *state)

// findBuiltin returns a command of shells that differs from the program of the same name, or that
// is no program; nil for other names.
func findBuiltin(name string) builtin {
	switch name {
	case "exec":
		return execBuiltin
	case "eval":
		return eval
	case "command":
		return commandBuiltin
	case "builtin":
		return builtinBuiltin
	case "cd":
		return cd
	case "trap":
		return trap
	case "source", ".":
		return source
	case "test", "[":
		return testBuiltin
	case "printf":
		return printf
	case "set":
		return set
	case "unset":
		return unset
	case "export", "readonly":
		return export
	case "mapfile", "readarray":
		return mapfile
	case "wait":
		return wait
	case "read", "getopts":
		return read
	case ":", "true", "false", "echo", "pwd", "exit", "return", "break", "continue", "shift",
		"times", "umask", "type", "dirs", "ulimit", "caller", "logout", "suspend", "fg", "bg", "disown":
		return func(a *analyzer, args []string, _ *string, _ *state) { a.builtin(args) }
	case "jobs", "history", "shopt":
		return func(a *analyzer, args []string, _ *string, _ *state) {
			if len(args) > 1 {
				a.obscure("options of the builtin " + args[0])
			}
			a.builtin(args)
		}
	case "alias", "unalias", "enable", "complete", "compgen", "compopt", "bind", "hash", "fc", "pushd",
		"popd", "let", "declare", "typeset", "local":
		return func(a *analyzer, args []string, _ *string, _ *state) {
			a.obscure("the builtin " + args[0])
			a.add(args, false)
		}
	}
	return nil
}

// read sets the variables that its arguments name.
func read(a *analyzer, args []string, _ *string, _ *state) {
	a.builtin(args)
	for _, word := range args[1:] {
		a.subscript(word)
		if !strings.HasPrefix(word, "-") {
			a.assign(word, false)
			continue
		}
		if _, name, ok := strings.Cut(word, "a"); ok { // an array, whose name may follow at once
			a.assign(name, false)
			for _, w := range append(args[1:], name) {
				a.arrays[w] = true
			}
		}
	}
}

// wait waits for processes, and sets a variable with -p.
func wait(a *analyzer, args []string, _ *string, _ *state) {
	a.builtin(args)
	if slices.ContainsFunc(args, func(w string) bool {
		return strings.HasPrefix(w, "-") && strings.Contains(w, "p") || mayBeOption(w)
	}) {
		a.obscure("wait with a variable")
	}
}

// execBuiltin is exec.
func execBuiltin(a *analyzer, args []string, stdin *string, st *state) {
	switch {
	case len(args) == 1: // only redirections
	case strings.HasPrefix(args[1], "-"):
		a.obscure("exec with options")
		a.add(args, false)
	default:
		a.add(args, true)
		a.program(args[1:], stdin, st)
	}
}

// eval runs its arguments as a script.
func eval(a *analyzer, args []string, _ *string, st *state) {
	a.add(args, true)
	if len(args) > 1 && args[1] == "--" {
		args = args[1:]
	}
	a.script(strings.Join(args[1:], " "), st)
}

// commandBuiltin is command, which runs a program or a builtin and no function.
func commandBuiltin(a *analyzer, args []string, stdin *string, st *state) {
	rest := args[1:]
	for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
		if strings.ContainsAny(rest[0], "vV") && strings.Trim(rest[0], "-pvV") == "" {
			a.builtin(args)
			return // it prints where a command is
		}
		if rest[0] != "-p" && rest[0] != "--" {
			a.obscure("command with options")
			a.add(args, false)
			return
		}
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return
	}
	a.add(args, true)
	inner := st.fork()
	inner.functions = nil
	a.command(rest, stdin, inner)
	st.dir = inner.dir
}

// builtinBuiltin is builtin, which runs one.
func builtinBuiltin(a *analyzer, args []string, stdin *string, st *state) {
	rest := args[1:]
	if len(rest) > 0 && rest[0] == "--" {
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return
	}
	if run := findBuiltin(rest[0]); run != nil {
		run(a, rest, stdin, st)
	} else {
		a.obscure("the builtin " + Printable(rest[0]))
	}
}

// cd changes the directory of the state.
func cd(a *analyzer, args []string, _ *string, st *state) {
	a.moved = true
	a.builtin(args)
	rest := args[1:]
	for len(rest) > 0 && (rest[0] == "--" || rest[0] == "-L" || rest[0] == "-P") {
		rest = rest[1:]
	}
	switch {
	case len(rest) == 0 && a.options.Home != "":
		st.dir = a.options.Home
	case len(rest) == 1 && !strings.HasPrefix(rest[0], "-") && rest[0] != "":
		st.dir = inDir(st.dir, rest[0])
	default:
		st.dir = string(Hole)
	}
}

// source runs a file, whose content needs the rule.
func source(a *analyzer, args []string, _ *string, _ *state) { a.add(args, false) }

// trap runs its first argument as a script later.
func trap(a *analyzer, args []string, _ *string, st *state) {
	a.builtin(args)
	rest := args[1:]
	if len(rest) > 0 && rest[0] == "--" {
		rest = rest[1:]
	}
	switch {
	case slices.ContainsFunc(rest, mayBeSeveral):
		a.obscure("trap with words that are made at run time")
	case len(rest) < 2 || rest[0] == "-" || rest[0] == "":
	case strings.HasPrefix(rest[0], "-"):
		a.obscure("trap with options")
	default:
		inner := st.fork()
		if inner.functions = nil; a.moves {
			inner.dir = string(Hole)
		}
		moved := a.moved
		a.moved = false
		a.script(rest[0], inner)
		early := func(w string) bool { return w != "EXIT" && w != "0" }
		if a.moved && slices.ContainsFunc(rest[1:], early) {
			a.obscure("trap with a cd")
		}
		a.moved = a.moved || moved
	}
}

// testBuiltin is test and "[", of which -v and -R evaluate subscripts.
func testBuiltin(a *analyzer, args []string, _ *string, _ *state) {
	for i, word := range args[1:] {
		if strings.ContainsRune(word, Split) || strings.ContainsRune(word, Glob) &&
			(startsWithHole(word) || strings.HasPrefix(word, "-")) {
			a.obscure("a test with words that are made at run time; put variables in double quotes")
		}
		named := word == "-v" || word == "-R" || mayBeOption(word)
		if named && i+2 < len(args) {
			a.subscript(args[i+2])
		}
	}
	a.builtin(args)
}

// printf sets a variable with -v.
func printf(a *analyzer, args []string, _ *string, _ *state) {
	switch {
	case len(args) < 2:
	case mayBeOption(args[1]):
		a.obscure("printf with options that are made at run time")
	case strings.HasPrefix(args[1], "-v"):
		name := args[1][2:]
		if name == "" && len(args) > 2 {
			name = args[2]
		}
		a.subscript(name)
		a.assign(name, false)
	}
	a.builtin(args)
}

// startsWithHole reports whether a word may be any text.
func startsWithHole(word string) bool {
	return strings.HasPrefix(word, string(Hole)) || strings.HasPrefix(word, string(Glob)) ||
		strings.ContainsRune(word, Split)
}

// mayBeOption reports whether a word may be an option that only the shell knows.
func mayBeOption(word string) bool {
	return startsWithHole(word) || strings.HasPrefix(word, "-") && strings.ContainsAny(word, holes)
}

// endsOptions reports whether args[i] certainly is the "--" behind which no options are: it is not
// the value of the option before.
func endsOptions(args []string, i int) bool {
	return args[i] == "--" && (i == 0 || !strings.HasPrefix(args[i-1], "-") &&
		!startsWithHole(args[i-1]))
}

// set sets options and the parameters.
func set(a *analyzer, args []string, _ *string, _ *state) {
	a.builtin(args)
	for i, word := range args[1:] {
		switch {
		case word == "--":
			return
		case mayBeOption(word), strings.HasPrefix(word, "+") && strings.Trim(word, "+eux") != "",
			strings.HasPrefix(word, "-") && strings.Trim(word, "-eufxvno") != "",
			strings.HasSuffix(args[i], "o") && word != "pipefail" && word != "errexit" &&
				word != "nounset" && word != "noglob":
			a.obscure("options of the shell that change what commands mean")
		case !strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "+") &&
			!strings.HasSuffix(args[i], "o"):
			return // the parameters
		}
	}
}

// export is export and readonly of shells that follow POSIX.
func export(a *analyzer, args []string, _ *string, _ *state) {
	a.builtin(args)
	a.declare(args[1:], false)
}

// unset removes variables and functions.
func unset(a *analyzer, args []string, _ *string, _ *state) {
	a.builtin(args)
	a.unsets = true
	for _, word := range args[1:] {
		a.subscript(word)
		if !strings.HasPrefix(word, "-") {
			a.assign(word, false)
		}
	}
}

// mapfile reads lines, and runs its -C.
func mapfile(a *analyzer, args []string, _ *string, _ *state) {
	for _, word := range args[1:] {
		a.subscript(word)
		switch {
		case !strings.HasPrefix(word, "-"):
			a.assign(word, false)
			a.arrays[word] = true
		case strings.Contains(word, "C"):
			a.obscure("a callback of " + args[0])
		}
	}
	a.builtin(args)
}
