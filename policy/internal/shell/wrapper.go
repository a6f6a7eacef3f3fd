package shell

import (
	"slices"
	"strings"
)

// wrapper describes a program that runs the command in its arguments.
type wrapper struct {
	// flags are the letters of options without a value, values those of options with one.
	flags, values string
	// long are the long options; "=" at the end marks one that has a value.
	long []string
	// operands is the number of arguments before the command.
	operands int
	// assigns: arguments of the form NAME=VALUE come before the command.
	assigns bool
	// judged: the program needs a rule of its own, since it changes the rights of the command or
	// where it acts.
	judged bool
	// outputs are the letters and long options that name a file that is written, and with writes the
	// operands do.
	outputs []string
	writes  bool
}

// The options are those of coreutils 9.4, util-linux 2.39, sudo 1.9.15, opendoas 6.8 and time 1.9.
var wrappers = map[string]wrapper{
	"env": {
		flags: "i0v", values: "uC", assigns: true,
		long: []string{"ignore-environment", "null", "unset=", "chdir=", "debug"},
	},
	"timeout": {
		flags: "fpv", values: "ks", operands: 1,
		long: []string{"foreground", "preserve-status", "verbose", "kill-after=", "signal="},
	},
	"nice":   {values: "n", long: []string{"adjustment="}},
	"nohup":  {},
	"setsid": {flags: "cfw", long: []string{"ctty", "fork", "wait"}},
	"stdbuf": {values: "ioe", long: []string{"input=", "output=", "error="}},
	"ionice": {flags: "t", values: "cn", long: []string{"class=", "classdata=", "ignore"}},
	"time": {
		flags: "pvaq", values: "fo", outputs: []string{"o", "output"},
		long: []string{"portability", "verbose", "append", "quiet", "format=", "output="},
	},
	"sudo": {
		flags: "AbBEeHKknPSsi", values: "CDghpRrtTUu", assigns: true, judged: true,
		long: []string{
			"askpass", "background", "bell", "edit", "set-home", "login", "shell", "non-interactive",
			"preserve-env",
			"preserve-groups", "stdin", "reset-timestamp", "user=", "group=", "host=", "prompt=",
			"chdir=", "chroot=",
			"close-from=", "role=", "type=", "command-timeout=",
		},
	},
	"doas":    {flags: "Lns", values: "Cu", judged: true},
	"chroot":  {operands: 1, judged: true, long: []string{"skip-chdir", "groups=", "userspec="}},
	"unshare": {judged: true}, "nsenter": {judged: true}, "setpriv": {judged: true},
	"strace": {judged: true}, "ltrace": {judged: true}, "caffeinate": {judged: true},
	"dbus-run-session": {judged: true}, "ssh-agent": {judged: true}, "fakeroot": {judged: true},
	"proot": {judged: true}, "xvfb-run": {judged: true}, "prlimit": {judged: true},
	"choom": {judged: true}, "runcon": {judged: true, operands: 1},
	"start-stop-daemon": {judged: true},
	"setuidgid":         {judged: true, operands: 1}, "envdir": {judged: true, operands: 1},
	"chpst": {judged: true},
	"gosu":  {judged: true, operands: 1}, "su-exec": {judged: true, operands: 1},
	"tini": {judged: true}, "dumb-init": {judged: true},
	"flock": { // it makes its file, which it locks
		flags: "sxenouFv", values: "wE", operands: 1, writes: true,
		long: []string{
			"shared", "exclusive", "nonblock", "close", "unlock", "no-fork", "verbose", "timeout=",
			"wait=", "conflict-exit-code=",
		},
	},
	"taskset": {flags: "ac", operands: 1, long: []string{"all-tasks", "cpu-list"}},
	"chrt":    {flags: "abfiorRv", operands: 1},
}

// mayBeSeveral reports whether a word may be another number of words.
func mayBeSeveral(word string) bool {
	return strings.ContainsRune(word, Split) || strings.ContainsRune(word, Glob)
}

// wrapper analyses a wrapper and the command in its arguments.
func (a *analyzer) wrapper(w wrapper, args []string, st *state) {
	st = st.fork()
	inner, ok := a.unwrap(w, args, st)
	a.add(args, !w.judged && len(inner) > 0)
	switch {
	case !ok:
		a.obscure("the options of " + args[0])
	case len(inner) > 0 && strings.HasPrefix(inner[0], "-"): // such as flock FILE -c SCRIPT
		a.obscure("the options of " + args[0])
	case len(inner) == 0 && w.judged:
		a.obscure("a script from standard input") // such as that of sudo -s
	case len(inner) > 0:
		if args[0] == "chroot" {
			st = &state{dir: string(Hole)}
		}
		a.program(inner, nil, st)
	}
}

// unwrap returns the command in the arguments of a wrapper. It returns false for options that it
// does not understand.
func (a *analyzer) unwrap(w wrapper, args []string, st *state) (inner []string, ok bool) {
	rest := args[1:]
	for len(rest) > 0 {
		word := rest[0]
		if mayBeOption(word) {
			return nil, false
		}
		if word == "--" {
			rest = rest[1:]
			break
		}
		if !strings.HasPrefix(word, "-") {
			break
		}
		rest = rest[1:]
		if word == "-" && args[0] == "env" {
			continue
		}
		option, value, hasValue := strings.Cut(word, "=")
		if long, isLong := strings.CutPrefix(option, "--"); isLong {
			switch {
			case slices.Contains(w.long, long) && !hasValue:
				continue
			case !slices.Contains(w.long, long+"="):
				return nil, false
			case !hasValue && len(rest) == 0:
				return nil, false
			case !hasValue:
				value, rest = rest[0], rest[1:]
			}
			option = long
		} else {
			letters := word[1:]
			if args[0] == "nice" && isNumber(letters) {
				continue
			}
			for letters != "" && strings.IndexByte(w.flags, letters[0]) >= 0 {
				letters = letters[1:]
			}
			if letters == "" {
				continue
			}
			if strings.IndexByte(w.values, letters[0]) < 0 {
				return nil, false
			}
			if option, value = letters[:1], letters[1:]; value == "" {
				if len(rest) == 0 {
					return nil, false
				}
				value, rest = rest[0], rest[1:]
			}
		}
		if mayBeSeveral(value) {
			return nil, false
		}
		switch {
		case slices.Contains(w.outputs, option):
			a.write(value, st)
		case option == "C" && args[0] == "env", option == "chdir", option == "D" && args[0] == "sudo":
			st.dir = inDir(st.dir, value)
		}
	}
	return a.operands(w, args[0], rest, st)
}

// operands returns the command behind the operands of a wrapper.
func (a *analyzer) operands(
	w wrapper, name string, rest []string, st *state,
) (inner []string, ok bool) {
	for w.assigns && len(rest) > 0 {
		variable, _, ok := strings.Cut(rest[0], "=")
		if !ok || name == "sudo" && strings.HasPrefix(rest[0], "/") {
			break
		}
		if strings.ContainsAny(variable, holes) {
			return nil, false
		}
		a.assign(variable, false)
		rest = rest[1:]
	}
	for range w.operands {
		if len(rest) == 0 {
			return nil, true
		}
		if mayBeSeveral(rest[0]) {
			return nil, false
		}
		if w.writes {
			a.write(rest[0], st)
		}
		rest = rest[1:]
	}
	return rest, true
}

// shell analyses sh -c SCRIPT, and a shell that reads its script.
func (a *analyzer) shell(args []string, stdin *string, st *state) {
	rest := args[1:]
	command := false
	for len(rest) > 0 && (strings.HasPrefix(rest[0], "-") || strings.HasPrefix(rest[0], "+")) {
		word := rest[0]
		rest = rest[1:]
		switch {
		case word == "--" || word == "-":
		case word == "--norc" || word == "--noprofile" || word == "--posix":
			continue
		case strings.HasPrefix(word, "--") || strings.Trim(word[1:], "bcefhmnpuvxCEo") != "":
			a.obscure("the options of " + args[0]) // such as -i and -l, which read files of settings
		default:
			command = command || strings.Contains(word, "c") && word[0] == '-'
			for range min(strings.Count(word, "o"), len(rest)) { // -o pipefail
				rest = rest[1:]
			}
			continue
		}
		break
	}
	inner := st.fork()
	inner.functions = nil
	switch {
	case len(rest) > 0 && startsWithHole(rest[0]) && !command:
		a.obscure("a script that is made at run time")
	case command && slices.Contains([]string{"zsh", "ksh", "mksh"}, args[0]):
		a.obscure("a script of " + args[0])
	case command && len(rest) > 0:
		a.add(args, true)
		a.scriptOf(args[0], rest[0], inner)
		return
	case len(rest) > 0: // a file
	case stdin != nil:
		a.add(args, true)
		a.scriptOf(args[0], *stdin, inner)
		return
	default:
		a.obscure("a script from standard input")
	}
	a.add(args, false)
}

// scriptOf analyses a script that another shell runs.
func (a *analyzer) scriptOf(shell, text string, st *state) {
	options := a.options
	a.options.Bash = shell == "bash"
	a.script(text, st)
	a.options = options
}

// operators of find that run a command up to ";" or "+", and those that write a file.
var (
	findRuns   = []string{"-exec", "-execdir", "-ok", "-okdir"}
	findWrites = []string{"-fprint", "-fprint0", "-fls", "-fprintf"}
)

// findActs are operators of find that have an effect.
var findActs = slices.Concat(findRuns, findWrites, []string{"-delete"})

// findValues are tests of find with a value that is no operator.
var findValues = []string{
	"-name", "-iname", "-path", "-ipath", "-wholename", "-iwholename", "-regex", "-iregex", "-lname",
	"-ilname", "-newer", "-user", "-group", "-type", "-size", "-mtime", "-mmin", "-atime", "-ctime",
	"-perm", "-maxdepth", "-mindepth", "-printf",
}

// find analyses the commands that find runs and the files that it changes.
func (a *analyzer) find(args []string, st *state) {
	for i := 1; i < len(args); i++ {
		switch word := args[i]; {
		case mayBeOption(word):
			a.obscure("find with operators that are made at run time")
		case slices.Contains(findValues, word) && i+1 < len(args):
			switch i++; {
			case mayBeSeveral(args[i]):
				a.obscure("find with operators that are made at run time")
			case slices.Contains(findActs, args[i]): // unless args[i-1] is a value itself
				a.obscure("find with an operator as a value")
			}
		case slices.Contains(findRuns, word):
			end := i + 1
			for end < len(args) && args[end] != ";" && (args[end] != "+" || args[end-1] != "{}") {
				end++
			}
			inner := slices.Clone(args[i+1 : end])
			if slices.ContainsFunc(inner, startsWithHole) { // which may be ";"
				a.obscure("find with operators that are made at run time")
			}
			for j := range inner {
				inner[j] = strings.ReplaceAll(inner[j], "{}", string(Hole))
			}
			way := st.fork()
			if strings.HasSuffix(word, "dir") {
				way.dir = string(Hole)
			}
			if len(inner) > 0 {
				if strings.HasPrefix(inner[0], "-") || slices.ContainsFunc(inner, func(w string) bool {
					return slices.Contains(findActs, w)
				}) { // word may be the value of a test
					a.obscure("find with operators in a command")
				}
				a.program(inner, nil, way)
			}
			i = end
		case word == "-delete":
			a.write(string(Hole), st)
		case slices.Contains(findWrites, word) && i+1 < len(args):
			if i++; slices.Contains(findActs, args[i]) { // unless word is the value of a test
				a.obscure("find with an operator as a value")
			}
			a.write(args[i], st)
		}
	}
}

// xargs analyses the command of xargs, to which words of standard input are added.
func (a *analyzer) xargs(args []string, st *state) {
	w := wrapper{
		flags: "0oprtx", values: "adEILnPs",
		long: []string{
			"null", "arg-file=", "delimiter=", "max-lines=", "max-args=", "max-procs=", "interactive",
			"no-run-if-empty",
			"max-chars=", "verbose", "exit", "open-tty",
		},
	}
	inner, ok := a.unwrap(w, args, st)
	a.add(args, true)
	if !ok {
		a.obscure("the options of xargs")
		return
	}
	if len(inner) == 0 {
		return // it prints the words
	}
	mark, marks := "", 0
	for i, word := range args[:len(args)-len(inner)] {
		if strings.HasPrefix(word, "-") && strings.Contains(word, "I") {
			marks++
		}
		letters, ok := strings.CutPrefix(word, "-")
		if m, has := strings.CutPrefix(strings.TrimLeft(letters, w.flags), "I"); ok && has {
			if mark = m; mark == "" && i+1 < len(args) {
				mark = args[i+1]
			}
		}
	}
	if marks > 1 {
		a.obscure("the options of xargs")
	}
	inner = slices.Clone(inner)
	if mark != "" {
		for i, word := range inner {
			inner[i] = strings.ReplaceAll(word, mark, string(Hole))
		}
	}
	inner = append(inner, string(Split)) // also with a mark: -L undoes it
	a.program(inner, nil, st)
}

// parallel analyses the command of parallel, which a shell runs.
func (a *analyzer) parallel(args []string, st *state) {
	w := wrapper{
		flags: "0kuvtmX", values: "jnNP",
		long: []string{
			"keep-order", "will-cite", "jobs=", "max-args=", "null", "bar", "ungroup",
		},
	}
	inner, ok := a.unwrap(w, args, st)
	a.add(args, true)
	end := slices.IndexFunc(inner, func(w string) bool { return strings.HasPrefix(w, ":::") })
	if end < 0 {
		end = len(inner)
	}
	script := strings.Join(inner[:end], " ")
	// Another program of that name runs each argument behind "--".
	if !ok || script == "" || slices.Contains(args, "--") || strings.ContainsAny(script, "{"+holes) {
		a.obscure("the command of parallel")
		return
	}
	a.scriptOf("sh", script+` "$parallel"`, st.fork())
}

// watch analyses the command of watch, which a shell runs.
func (a *analyzer) watch(args []string, st *state) {
	w := wrapper{
		flags: "bcdegptw", values: "nq",
		long: []string{
			"beep", "color", "differences", "errexit", "chgexit", "precise", "no-title", "no-wrap",
			"interval=",
		},
	}
	inner, ok := a.unwrap(w, args, st)
	a.add(args, true)
	if !ok {
		a.obscure("the options of watch")
		return
	}
	a.scriptOf("sh", strings.Join(inner, " "), st.fork())
}
