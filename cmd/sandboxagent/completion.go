package main

import (
	"context"
	_ "embed" // for the scripts
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// The scripts call "sandboxagent completion words -- WORD...", so they depend on no command and no
// flag.
var (
	//go:embed completion/bash
	bashCompletion string
	//go:embed completion/zsh
	zshCompletion string
	//go:embed completion/fish
	fishCompletion string
)

func (p *program) completionCommand() *cli.Command {
	return &cli.Command{
		Usage:     "print a script that makes a shell complete commands and flags",
		ArgsUsage: "bash|zsh|fish",
		UsageText: `
source <(sandboxagent completion bash)
sandboxagent completion fish | source`,
		Description: `
The first example is a line for ~/.bashrc, and, with zsh, for ~/.zshrc after compinit; the second is
one for ~/.config/fish/config.fish. The script runs sandboxagent, which must be in PATH.`,
		Action: p.action(p.completion),
	}
}

// completion is the command completion.
func (p *program) completion(_ context.Context, c *cli.Context) (int, error) {
	script := ""
	switch name := c.Args().First(); name {
	case "words":
		words, files := p.complete(p.app(), c.Args().Tail())
		for _, word := range words {
			if _, err := fmt.Fprintln(p.std.out, word); err != nil {
				return 0, err
			}
		}
		if files {
			return codeFailed, nil
		}
		return codeDone, nil
	case "bash":
		script = bashCompletion
	case "zsh":
		script = zshCompletion
	case "fish":
		script = fishCompletion
	}
	if script == "" || c.NArg() > 1 {
		return 0, usagef("completion needs the name of one shell: bash, zsh or fish")
	}
	_, err := io.WriteString(p.std.out, script)
	return codeDone, err
}

// complete returns the words that may stand for the last word of a command line, which is
// incomplete. files reports that the name of a file may.
func (p *program) complete(app *cli.App, line []string) (words []string, files bool) {
	if len(line) == 0 || slices.Contains(line[:len(line)-1], "--") {
		return nil, true
	}
	line, current := line[:len(line)-1], line[len(line)-1]
	var names []string // the words that are neither flags nor their values
	valueOf := ""      // the flag whose value comes next
	all := allFlags(app)
	for _, word := range line {
		name, _, hasValue := cutFlag(word)
		switch {
		case word == "=": // bash separates --env=local at it
		case valueOf != "":
			valueOf = ""
		case name == "":
			names = append(names, word)
		case !hasValue && takesValue(findFlag(all, name)):
			valueOf = name
		}
	}
	if len(names) > 0 && names[0] == "help" {
		names = names[1:]
	}
	command, _, err := findCommand(app, names)
	if err != nil {
		return nil, false
	}
	prefix := ""
	if name, value, hasValue := cutFlag(current); hasValue && valueOf == "" {
		valueOf, prefix, current = name, strings.TrimSuffix(current, value), value
	}
	switch {
	case valueOf != "":
		current = strings.TrimPrefix(current, "=")
		if f, ok := findFlag(command.Flags, valueOf).(cli.DocGenerationFlag); ok {
			words, files = flagValues(f), isFile(f)
			if f.Names()[0] == "model" {
				words = modelNames()
			}
		}
	case strings.HasPrefix(current, "-"):
		words = []string{helpFlag}
		for _, f := range command.Flags {
			words = append(words, "--"+f.Names()[0])
		}
	case app.Command(command.Name) == nil:
		words = nextWords(app, command.Name)
	default:
		words, files = p.argumentWords(command.Name)
	}
	words = slices.DeleteFunc(words, func(w string) bool { return !strings.HasPrefix(w, current) })
	for i := range words {
		words[i] = prefix + words[i]
	}
	return words, files
}

// nextWords returns the words after first in the names of commands. first may be empty.
func nextWords(app *cli.App, first string) (words []string) {
	if first == "" {
		words = append(words, "help")
	}
	for _, c := range app.Commands {
		word, second, _ := strings.Cut(c.Name, " ")
		switch first {
		case "":
			words = append(words, word)
		case word:
			words = append(words, second)
		}
	}
	return slices.Compact(words)
}

// argumentWords returns the words that a command takes as arguments.
func (p *program) argumentWords(command string) (words []string, files bool) {
	switch command {
	case "exec", "env attach":
		return nil, true
	case "image build":
		return imageNames(), false
	case "completion":
		return []string{"bash", "zsh", "fish"}, false
	case "tool":
		if registry, err := p.toolRegistry(); err == nil {
			words = registry.Names()
		}
	}
	return words, false
}

// modelNames returns the models of the table.
func modelNames() (names []string) {
	table, _, _ := modelTable("") // after an error none
	for _, m := range table.List() {
		names = append(names, m.Provider+"/"+m.Prefix)
	}
	return names
}

// isFile reports whether the value of a flag is the name of a file or a directory.
func isFile(f cli.DocGenerationFlag) bool {
	name := valueName(f)
	return name == "FILE" || name == "DIR" || name == "PATH" || strings.HasPrefix(name, "SOURCE")
}

// flagValues returns the values of a flag that are words of its usage.
func flagValues(f cli.DocGenerationFlag) (values []string) {
	switch f.Names()[0] {
	case "env":
		for _, b := range backends(nil) {
			values = append(values, b.name())
		}
	case "inherit-vars":
		for _, m := range []vars.Mode{vars.Filtered, vars.All, vars.Core, vars.None} {
			values = append(values, string(m))
		}
	case "sandbox":
		values = []string{sandboxAuto, sandboxRequire, sandboxOff}
	case "network":
		values = []string{"none", "full"}
	case "git":
		values = []string{"ro", "rw"}
	case "sockets":
		values = []string{"own", "none"}
	case "enforce":
		values = guaranteeNames()
	case "pull":
		for _, when := range []docker.PullPolicy{
			docker.PullMissing, docker.PullAlways, docker.PullNever,
		} {
			values = append(values, string(when))
		}
	case "reasoning-effort":
		values = []string{"low", "medium", "high"}
	case "output":
		values = []string{formatText, formatJSON, formatStream}
	}
	usage := strings.FieldsFunc(f.GetUsage(), func(r rune) bool {
		return strings.ContainsRune(" ,:;()`", r)
	})
	return slices.DeleteFunc(values, func(v string) bool { return !slices.Contains(usage, v) })
}
