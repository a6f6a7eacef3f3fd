package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
)

// arrange brings the arguments of the program into the order that the flag parser wants: the command, its flags, "--", and
// what is left. Flags may stand anywhere before "--", also before the command. If there is no command, its name is empty
// and the second result holds the flags. Where help is asked for, "--help" takes the place of all flags.
func arrange(app *cli.App, args []string) (command string, arranged []string, err error) {
	words := commandWords(app, args)
	name := strings.Join(words, " ")
	flags := app.Flags
	if name != "" {
		c := app.Command(name)
		if c == nil {
			return name, nil, unknownCommand(app, words)
		}
		flags = c.Flags
	}
	found, rest, err := splitFlags(flags, args)
	if err != nil {
		return name, nil, err
	}
	return name, slices.Concat(found, []string{"--"}, rest[len(words):]), nil
}

// asksHelp reports whether arguments that arrange made ask for help, and returns what stands beside it.
func asksHelp(arranged []string) (rest []string, ok bool) {
	if len(arranged) < 2 || arranged[0] != helpFlag {
		return nil, false
	}
	return arranged[2:], true
}

const helpFlag = "--help"

// commandWords returns the name of the command: the first argument that is neither a flag nor the value of one, with the
// second one if commands begin with the first. Flags of all commands count.
func commandWords(app *cli.App, args []string) []string {
	all := app.Flags
	for _, c := range app.Commands {
		all = append(all[:len(all):len(all)], c.Flags...)
	}
	var words []string
	for i := 0; i < len(args); i++ {
		name, hasValue := cutFlag(args[i])
		switch {
		case args[i] == "--":
			return words
		case name == "":
			words = append(words, args[i])
			if len(words) == 2 || len(group(app, args[i])) == 0 {
				return words
			}
		case !hasValue && takesValue(findFlag(all, name)):
			i++
		}
	}
	return words
}

// group returns the second words of the commands of two words that begin with word.
func group(app *cli.App, word string) []string {
	var second []string
	for _, c := range app.Commands {
		if rest, ok := strings.CutPrefix(c.Name, word+" "); ok {
			second = append(second, rest)
		}
	}
	return second
}

// splitFlags parts flags, with their values, from the other arguments. Where help is asked for, no other flag is found.
func splitFlags(flags []cli.Flag, args []string) (found, rest []string, err error) {
	help := false
	defer func() {
		if help && err == nil {
			found = []string{helpFlag}
		}
	}()
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if arg == "--" {
			return found, append(rest, args[i+1:]...), nil
		}
		name, hasValue := cutFlag(arg)
		if name == "" {
			rest = append(rest, arg)
			continue
		}
		f := findFlag(flags, name)
		if f == nil && !isHelp(name) {
			return nil, nil, unknownFlag(flags, arg, name)
		}
		help = help || f == nil
		found = append(found, arg)
		if hasValue {
			_, value, _ := strings.Cut(arg, "=")
			if err := checkValue(f, name, value); err != nil {
				return nil, nil, err
			}
		}
		if hasValue || !takesValue(f) {
			continue
		}
		if i++; i == len(args) || args[i] == "--" {
			return nil, nil, usagef("the flag --%s needs a value", name)
		}
		if err := checkValue(f, name, args[i]); err != nil {
			return nil, nil, err
		}
		found = append(found, args[i])
	}
	return found, rest, nil
}

// checkValue refuses a blank value of a flag that takes a text: it comes from a variable of a script that is not set, and
// acting as if the flag were not there would hide that.
func checkValue(f cli.Flag, name, value string) error {
	switch f.(type) {
	case *cli.StringFlag, *cli.StringSliceFlag:
		if strings.TrimSpace(value) == "" {
			return usagef("--%s is empty; give it a value or leave it out", name)
		}
	}
	return nil
}

// cutFlag returns the name of a flag, and whether its value is part of arg. The name is empty if arg is no flag. A lone
// dash stands for standard input.
func cutFlag(arg string) (name string, hasValue bool) {
	if len(arg) < 2 || arg[0] != '-' || arg == "--" {
		return "", false
	}
	name, _, hasValue = strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
	return name, hasValue
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

func isHelp(name string) bool { return name == "help" || name == "h" }

func unknownCommand(app *cli.App, words []string) error {
	if second := group(app, words[0]); len(second) > 0 {
		what := "something is missing behind " + strconv.Quote(words[0])
		if len(words) > 1 {
			what = fmt.Sprintf("there is no command %q", strings.Join(words, " "))
		}
		return usagef("%s; there is %s %s", what, words[0], strings.Join(second, ", "+words[0]+" "))
	}
	var names []string
	for _, c := range app.Commands {
		names = append(names, c.Name)
	}
	return usagef("there is no command %q; the commands are %s", words[0], strings.Join(names, ", "))
}

// unknownFlag names the flag that was probably meant, if one is near.
func unknownFlag(flags []cli.Flag, arg, name string) error {
	arg, _, _ = strings.Cut(arg, "=")
	best, most := "", min(3, len(name)/2)
	for _, f := range flags {
		for _, n := range f.Names() {
			if d := distance(name, n); d <= most {
				best, most = n, d-1
			}
		}
	}
	if best != "" {
		return usagef("there is no flag %s; did you mean --%s?", arg, best)
	}
	return usagef("there is no flag %s here; arguments that begin with a dash stand after \"--\"", arg)
}

// distance is how many letters have to be added, removed or changed to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// usageError is a mistake in the arguments, the variables or the configuration.
type usageError struct{ message string }

func (e *usageError) Error() string { return e.message }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }
