package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
	"github.com/sandboxagent/sandboxagent/policy"
)

const helpFlag = "--help"

// commandLine is the arguments of the program in the order that package flag parses, with the flags
// that environment variables and files set.
type commandLine struct {
	// command is the name of the command, of one or two words, or only the first of two; may be empty.
	command string
	// flags are the flags as --NAME=VALUE, rest the arguments.
	flags, rest []string
	// sources has the flags, as --NAME, that something else than an argument set.
	sources map[string]source
	// recalled are the flags of the session that goes on, as --NAME.
	recalled []string
	// costOfRun means that the recalled --max-cost limits each run of a batch: a variable or a file
	// had set it.
	costOfRun bool
	// rules are those of the project, which tighten the policy; may be nil.
	rules *policy.Policy
	// project is the directory of the project whose file counts; trusted is the name of this file if
	// the user trusts the project. Both may be empty.
	project, trusted string
	// userModel is the model that the user's file sets; may be empty.
	userModel string
	// help is true if the arguments have a help flag.
	help bool
}

// givenFlag is a flag in the arguments.
type givenFlag struct{ arg, name, value string }

// parseCommandLine separates flags from arguments, which package flag does not mix, and validates
// the values of flags. Flags are valid anywhere before "--", also before the command. With an error
// l has the other flags, if the command is known.
func parseCommandLine(app *cli.App, args []string) (l commandLine, err error) {
	var given []givenFlag
	var words []string
	missing := "" // the flag at the end that lacks its value
	all := allFlags(app)
	for len(args) > 0 && args[0] != "--" {
		arg := args[0]
		args = args[1:]
		name, value, hasValue := cutFlag(arg)
		switch {
		case name == "":
			words = append(words, arg)
		case name == "help" || name == "h":
			l.help = true
		case hasValue:
			given = append(given, givenFlag{arg, name, value})
		case isCombined(all, arg):
			for _, letter := range name {
				given = append(given, givenFlag{arg, string(letter), "true"})
			}
		case !takesValue(findFlag(all, name)):
			given = append(given, givenFlag{arg, name, "true"})
		case len(args) == 0 || args[0] == "--":
			missing = arg
		default:
			given = append(given, givenFlag{arg, name, args[0]})
			args = args[1:]
		}
	}
	command, words, err := findCommand(app, words)
	if err != nil {
		return l, err
	}
	l.command, l.rest = command.Name, words
	if len(args) > 0 { // "--"
		l.rest = append(l.rest, args[1:]...)
	}
	for _, g := range given {
		if flag := findFlag(command.Flags, g.name); flag == nil {
			err = cmp.Or(err, unknownFlag(app, command.Flags, g))
		} else {
			err = cmp.Or(err, l.add(flag, g.value))
		}
	}
	if missing != "" {
		err = cmp.Or(err, usagef("%s needs a value", missing))
	}
	return l, err
}

// add validates the value of a flag and adds both.
func (l *commandLine) add(f cli.Flag, value string) error {
	name := "--" + f.Names()[0]
	if strings.TrimSpace(value) == "" {
		return usagef("%s is empty; give it a value or leave it out", name)
	}
	if kind := invalidKind(f, value); kind != "" {
		return usagef("%s: %q is not %s", name, value, kind)
	}
	l.flags = append(l.flags, name+"="+value)
	return nil
}

// value returns the last value of a flag; empty if it is not set.
func (l *commandLine) value(name string) string { return lastValue(l.flags, name) }

// lastValue returns the last value of a flag in flags, which are of the form --NAME=VALUE.
func lastValue(flags []string, name string) (value string) {
	for _, f := range flags {
		if v, ok := strings.CutPrefix(f, "--"+name+"="); ok {
			value = v
		}
	}
	return value
}

// variable returns the environment variable of a flag, and its value. A blank variable counts as
// not set.
func variable(flag string) (name, value string) {
	name = "SANDBOXAGENT_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
	if value = os.Getenv(name); strings.TrimSpace(value) == "" {
		value = ""
	}
	return name, value
}

// withoutVariables are the flags that no variable sets.
var withoutVariables = [...]string{
	"all", sessionName, lastName, answerName, approveName, refuseName, "name", "follow", "remove",
	"failed",
}

var leadingFlag = lazyregexp.New(`^--[a-z-]+`)

// nameSource makes a usageError about a flag name what set the flag instead.
func (l *commandLine) nameSource(err error) {
	var usage *usageError
	if !errors.As(err, &usage) {
		return
	}
	flag := leadingFlag().FindString(usage.message)
	if s, ok := l.sources[flag]; ok {
		usage.message = s.subject() + strings.TrimPrefix(usage.message, flag)
	} else if slices.Contains(l.recalled, flag) {
		usage.message += "; the session has this " + flag + ": give another one"
	}
}

// invalidKind returns the kind of value that f requires if value is invalid, else an empty text.
func invalidKind(f cli.Flag, value string) (kind string) {
	var err error
	switch f.(type) {
	case *cli.DurationFlag:
		kind = "a duration such as 90s, 10m or 1h30m"
		_, err = time.ParseDuration(value)
	case *cli.IntFlag, *cli.Int64Flag:
		kind = "a whole number"
		_, err = strconv.ParseInt(value, 0, 64)
	case *cli.Float64Flag:
		kind = "a number"
		_, err = strconv.ParseFloat(value, 64)
	case *cli.BoolFlag:
		kind = "a boolean; use true or false"
		_, err = strconv.ParseBool(value)
	}
	if err == nil {
		return ""
	}
	return kind
}

// cutFlag returns the parts of a flag; the name is empty for an argument, such as a single dash.
func cutFlag(arg string) (name, value string, hasValue bool) {
	if len(arg) < 2 || arg[0] != '-' {
		return "", "", false
	}
	return strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
}

// isCombined reports whether arg is several flags of one letter, such as -it.
func isCombined(flags []cli.Flag, arg string) bool {
	letters, short := strings.CutPrefix(arg, "-")
	if !short || len(letters) < 2 || findFlag(flags, letters) != nil {
		return false
	}
	for _, letter := range letters {
		if f := findFlag(flags, string(letter)); f == nil || takesValue(f) {
			return false
		}
	}
	return true
}

// allFlags returns the flags of all commands.
func allFlags(app *cli.App) (all []cli.Flag) {
	for _, c := range app.Commands {
		all = append(all, c.Flags...)
	}
	return all
}

func findFlag(flags []cli.Flag, name string) cli.Flag {
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

// isList reports whether a flag has several values.
func isList(f cli.Flag) bool {
	_, ok := f.(*cli.StringSliceFlag)
	return ok
}

func takesValue(f cli.Flag) bool {
	d, ok := f.(cli.DocGenerationFlag)
	return ok && d.TakesValue()
}

// findCommand returns the command that words start with, and the words after its name. If words are
// none or only the first word of several commands, the command has this name alone.
func findCommand(app *cli.App, words []string) (_ *cli.Command, rest []string, err error) {
	if len(words) == 0 {
		return &cli.Command{}, nil, nil
	}
	if len(words) > 1 {
		if c := app.Command(words[0] + " " + words[1]); c != nil {
			return c, words[2:], nil
		}
	}
	var names, subcommands []string
	for _, c := range app.Commands {
		first, second, _ := strings.Cut(c.Name, " ")
		switch {
		case c.Name == words[0]:
			return c, words[1:], nil
		case first == words[0]:
			subcommands = append(subcommands, second)
		}
		names = append(names, c.Name)
	}
	switch {
	case len(subcommands) == 0:
		return nil, nil, usagef("unknown command %q (known: %s)", words[0], strings.Join(names, ", "))
	case len(words) > 1:
		return nil, nil, usagef("unknown command %q; the subcommands of %q are %s",
			strings.Join(words[:2], " "), words[0], strings.Join(subcommands, ", "))
	}
	return &cli.Command{Name: words[0]}, nil, nil
}

// unknownFlag names the commands that have the flag, or else a flag with a similar name.
func unknownFlag(app *cli.App, flags []cli.Flag, given givenFlag) error {
	arg, _, _ := strings.Cut(given.arg, "=")
	var owners []string
	for _, c := range app.Commands {
		if findFlag(c.Flags, given.name) != nil {
			owners = append(owners, c.Name)
		}
	}
	best := similar(given.name, flags)
	const remedy = `put arguments that start with a dash after "--"`
	switch {
	case len(given.name) > 1 && len(owners) > 0:
		return usagef("unknown flag %s, which is a flag of %s; %s",
			arg, strings.Join(owners, ", "), remedy)
	case best != "":
		return usagef("unknown flag %s; did you mean --%s?", arg, best)
	}
	return usagef("unknown flag %s; %s", arg, remedy)
}

// similar returns the name of the flag that name resembles most; empty if it resembles none.
func similar(name string, flags []cli.Flag) (best string) {
	limit := min(3, len(name)/2)
	for _, f := range flags {
		n := f.Names()[0]
		if len(name)-len(n) > limit { // it may be very long
			continue
		}
		if d := smetrics.WagnerFischer(name, n, 1, 1, 1); d <= limit {
			best, limit = n, d-1
		}
	}
	return best
}

// usageError is a mistake in the arguments, the environment variables or the configuration.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }
