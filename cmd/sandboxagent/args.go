package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"
)

const helpFlag = "--help"

// commandLine is the arguments of the program in the order that package flag parses.
type commandLine struct {
	// command is the name of the command, of one or two words; may be empty.
	command string
	// flags are the flags with their values, rest the arguments.
	flags, rest []string
	// help is true if the arguments have a help flag.
	help bool
}

// parseCommandLine separates flags from arguments, which package flag does not mix, and validates
// the values of flags and of their environment variables. Flags are valid anywhere before "--",
// also before the command.
func parseCommandLine(app *cli.App, args []string) (l commandLine, err error) {
	type found struct{ arg, name, value string }
	var flags []found
	var words []string
	missing := "" // the flag at the end that lacks its value
	all := slices.Clone(app.Flags)
	for _, c := range app.Commands {
		all = append(all, c.Flags...)
	}
	for len(args) > 0 && args[0] != "--" {
		arg := args[0]
		args = args[1:]
		name, value, hasValue := cutFlag(arg)
		switch {
		case name == "":
			words = append(words, arg)
			continue
		case name == "help" || name == "h":
			l.help = true
			continue
		case !hasValue && takesValue(findFlag(all, name)):
			if len(args) == 0 || args[0] == "--" {
				missing = name
				continue
			}
			value, args = args[0], args[1:]
			l.flags = append(l.flags, arg, value)
		default:
			l.flags = append(l.flags, arg)
			if !hasValue {
				value = "true"
			}
		}
		flags = append(flags, found{arg, name, value})
	}
	known := app.Flags
	if len(words) > 0 {
		c, n, err := findCommand(app, words)
		if err != nil {
			return l, err
		}
		l.command, known, words = c.Name, c.Flags, words[n:]
	}
	l.rest = words
	if len(args) > 0 { // "--"
		l.rest = append(l.rest, args[1:]...)
	}
	for _, f := range flags {
		flag := findFlag(known, f.name)
		if flag == nil {
			return l, unknownFlag(known, f.arg, f.name)
		}
		if strings.TrimSpace(f.value) == "" {
			return l, usagef("--%s is empty; give it a value or leave it out", f.name)
		}
		if kind := invalidKind(flag, f.value); kind != "" {
			return l, usagef("--%s: %q is not %s", f.name, f.value, kind)
		}
	}
	if missing != "" {
		return l, usagef("--%s needs a value", missing)
	}
	return l, checkVariables(known)
}

// checkVariables validates the environment variables of flags.
func checkVariables(flags []cli.Flag) error {
	for _, f := range flags {
		d, ok := f.(cli.DocGenerationFlag)
		if !ok {
			continue
		}
		for _, name := range d.GetEnvVars() {
			value, set := os.LookupEnv(name)
			if kind := invalidKind(f, value); set && kind != "" {
				return usagef("the variable %s: %q is not %s", name, value, kind)
			}
		}
	}
	return nil
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

func findFlag(flags []cli.Flag, name string) cli.Flag {
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

func takesValue(f cli.Flag) bool {
	d, ok := f.(cli.DocGenerationFlag)
	return ok && d.TakesValue()
}

// findCommand returns the command that words start with, and the number of words in its name.
func findCommand(app *cli.App, words []string) (*cli.Command, int, error) {
	var names, subcommands []string
	for _, c := range app.Commands {
		first, second, _ := strings.Cut(c.Name, " ")
		switch {
		case c.Name == words[0]:
			return c, 1, nil
		case first != words[0]:
		case len(words) > 1 && second == words[1]:
			return c, 2, nil
		default:
			subcommands = append(subcommands, second)
		}
		names = append(names, c.Name)
	}
	switch {
	case len(subcommands) == 0:
		return nil, 0, usagef("unknown command %q (known: %s)", words[0], strings.Join(names, ", "))
	case len(words) > 1:
		return nil, 0, usagef("unknown command %q; the subcommands of %q are %s",
			strings.Join(words[:2], " "), words[0], strings.Join(subcommands, ", "))
	}
	return nil, 0, usagef("%q needs a subcommand: %s", words[0], strings.Join(subcommands, ", "))
}

// unknownFlag suggests a flag with a similar name.
func unknownFlag(flags []cli.Flag, arg, name string) error {
	arg, _, _ = strings.Cut(arg, "=")
	best, limit := "", min(3, len(name)/2)
	for _, f := range flags {
		for _, n := range f.Names() {
			if d := smetrics.WagnerFischer(name, n, 1, 1, 1); d <= limit {
				best, limit = n, d-1
			}
		}
	}
	if best != "" {
		return usagef("unknown flag %s; did you mean --%s?", arg, best)
	}
	return usagef("unknown flag %s; put arguments that start with a dash after \"--\"", arg)
}

// usageError is a mistake in the arguments, the environment variables or the configuration.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }
