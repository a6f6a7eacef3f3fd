package main

import (
	"cmp"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// The groups of flags in help, which are the categories of the flags.
const (
	groupBatch       = "batch"
	groupTask        = "task"
	groupCommand     = "command"
	groupModel       = "model"
	groupEnvironment = "environment"
	groupSandbox     = "sandbox"
	groupRemote      = "docker, k8s and ssh"
	groupContainer   = "docker and k8s"
	groupDocker      = "docker"
	groupK8s         = "k8s"
	groupSSH         = "ssh"
	groupFiles       = "files"
	groupPolicy      = "policy"
	groupOutput      = "output"
	groupConfig      = "configuration"
)

// groups are the groups of flags in the order in which help lists them.
var groups = [...]string{
	groupBatch, groupTask, groupCommand, groupModel, groupPolicy, groupEnvironment, groupSandbox,
	groupRemote, groupContainer, groupDocker, groupK8s, groupSSH, groupFiles, groupOutput,
	groupConfig,
}

// The columns of the texts in a list of commands and in a list of flags.
const (
	commandColumn = 16
	flagColumn    = 27
)

// helpWidth returns the number of columns of help: COLUMNS between 60 and 100, by default 80.
func helpWidth() int {
	columns, err := strconv.Atoi(os.Getenv("COLUMNS"))
	if err != nil {
		return 80
	}
	return min(max(columns, 60), 100)
}

// writeHelp writes the help of a command. If command is empty or only the first word of several
// commands, it lists these.
func writeHelp(w io.Writer, app *cli.App, command string) error {
	h := helpWriter{width: helpWidth()}
	if c := app.Command(command); c != nil {
		h.command(c)
	} else {
		h.list(app, command)
	}
	_, err := io.WriteString(w, h.text.String())
	return err
}

// helpWriter makes the text of a help.
type helpWriter struct {
	text  strings.Builder
	width int
}

// list describes the commands whose names start with the word first, which may be empty.
func (h *helpWriter) list(app *cli.App, first string) {
	name, prefix := app.Name, ""
	if first == "" {
		h.wrap(0, app.Name+" - "+app.Usage)
		h.text.WriteByte('\n')
	} else {
		name, prefix = name+" "+first, first+" "
	}
	h.wrap(4, "usage: "+name+" COMMAND [flags] [arguments]")
	h.text.WriteString("\ncommands:\n")
	for _, c := range app.Commands {
		if name, ok := strings.CutPrefix(c.Name, prefix); ok {
			h.entry(commandColumn, name, c.Usage)
		}
	}
	h.text.WriteByte('\n')
	h.wrap(0, `"`+name+` COMMAND --help" describes a command. Flags stand before or after arguments; `+
		`"--" ends them. Nearly each flag has a variable, SANDBOXAGENT_MAX_TURNS for --max-turns, `+
		`and a key in `+configName+` ("config --help").`)
}

// command describes c.
func (h *helpWriter) command(c *cli.Command) {
	h.wrap(0, "sandboxagent "+c.Name+" - "+c.Usage)
	h.text.WriteByte('\n')
	h.wrap(4, "usage: sandboxagent "+c.Name+" "+c.ArgsUsage)
	if c.Description != "" {
		h.text.WriteByte('\n')
		h.description(c.Description)
	}
	for _, group := range groups {
		heading := "\n" + group + ":\n"
		for _, f := range c.Flags {
			if flag := f.(documentedFlag); flag.GetCategory() == group {
				h.text.WriteString(heading)
				h.flag(flag)
				heading = ""
			}
		}
	}
	h.text.WriteString("\nexamples:\n")
	for example := range strings.Lines(strings.TrimSpace(c.UsageText)) {
		h.text.WriteString("  " + strings.TrimSpace(example) + "\n")
	}
}

// documentedFlag is every flag of package cli.
type documentedFlag interface {
	cli.DocGenerationFlag
	cli.CategorizableFlag
}

// flag describes f.
func (h *helpWriter) flag(f documentedFlag) {
	name := "    "
	for _, n := range f.Names() {
		if len(n) == 1 {
			name = "-" + n + ", "
		}
	}
	name += "--" + f.Names()[0]
	usage := strings.ReplaceAll(f.GetUsage(), "`", "")
	if f.TakesValue() {
		name += " " + valueName(f)
		if text := strings.Trim(f.GetDefaultText(), `"`); text != "" {
			usage += " (default: " + text + ")"
		}
	}
	h.entry(flagColumn, name, usage)
}

// valueName returns the name of the value of a flag: the part of its usage in backquotes.
func valueName(f cli.DocGenerationFlag) string {
	_, after, _ := strings.Cut(f.GetUsage(), "`")
	name, _, _ := strings.Cut(after, "`")
	return cmp.Or(name, "VALUE")
}

// entry writes a name and, from column on, its text, which starts on the next line if the name is
// long.
func (h *helpWriter) entry(column int, name, text string) {
	name = "  " + name
	space := column - len(name)
	if space < 2 {
		h.text.WriteString(name + "\n")
		name, space = "", column
	}
	h.text.WriteString(name + strings.Repeat(" ", space))
	h.wrapAt(column, column, text)
}

// description writes a text with a paragraph for each line that starts with a blank; other lines in
// succession are one paragraph.
func (h *helpWriter) description(text string) {
	var paragraphs []string
	for line := range strings.Lines(strings.TrimSpace(text)) {
		last := len(paragraphs) - 1
		if last >= 0 && line[0] != ' ' && paragraphs[last][0] != ' ' {
			paragraphs[last] += line
		} else {
			paragraphs = append(paragraphs, line)
		}
	}
	for _, p := range paragraphs {
		indent := 0
		if p[0] == ' ' {
			indent = 2
		}
		h.wrap(indent, p)
	}
}

// wrap writes text in lines, all but the first of which have an indent.
func (h *helpWriter) wrap(indent int, text string) { h.wrapAt(0, indent, text) }

// wrapAt writes text in lines, the first from column on, the others with an indent.
func (h *helpWriter) wrapAt(column, indent int, text string) {
	start := true
	for word := range strings.FieldsSeq(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case start:
		case column+1+n > h.width:
			h.text.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		default:
			h.text.WriteByte(' ')
			column++
		}
		h.text.WriteString(word)
		column += n
		start = false
	}
	h.text.WriteByte('\n')
}
