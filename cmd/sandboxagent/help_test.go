package main

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// helpApp is the program whose help is written.
var helpApp = sync.OnceValue(func() *cli.App { return (&program{}).app() })

// helpOf returns the help of a command.
func helpOf(t *testing.T, command string) string {
	t.Helper()
	var b strings.Builder
	if err := writeHelp(&b, helpApp(), command); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestHelpFits checks that no line of help is longer than the terminal, within bounds.
func TestHelpFits(t *testing.T) {
	for columns, width := range map[string]int{
		"": 80, "wide": 80, "20": 60, "60": 60, "77": 77, "100": 100, "300": 100,
	} {
		t.Setenv("COLUMNS", columns)
		longest := 0
		commands := []string{"", "env", "image", "model", "policy"}
		for _, c := range (&program{}).app().Commands {
			commands = append(commands, c.Name)
		}
		for _, command := range commands {
			for line := range strings.Lines(helpOf(t, command)) {
				line = strings.TrimSuffix(line, "\n")
				longest = max(longest, utf8.RuneCountInString(line))
				if utf8.RuneCountInString(line) > width {
					t.Errorf("COLUMNS=%s: %q: %q is longer than %d", columns, command, line, width)
				}
			}
		}
		if longest < width-4 {
			t.Errorf("COLUMNS=%s: the longest line has %d columns of %d", columns, longest, width)
		}
	}
}

// TestHelpGroups checks that each flag has a known group, and that help lists it once, below the
// heading of its group.
func TestHelpGroups(t *testing.T) {
	entry := regexp.MustCompile(`^ {2}(?:-\w, | {4})--([a-z-]+)(?: |$)`)
	for _, c := range (&program{}).app().Commands {
		group := ""
		listed := make(map[string]string)
		for line := range strings.Lines(helpOf(t, c.Name)) {
			line = strings.TrimSuffix(line, "\n")
			if heading := strings.TrimSuffix(line, ":"); slices.Contains(groups[:], heading) {
				group = heading
			}
			if m := entry.FindStringSubmatch(line); m != nil {
				if listed[m[1]] != "" {
					t.Errorf("%s: --%s is listed twice", c.Name, m[1])
				}
				listed[m[1]] = group
			}
		}
		for _, f := range c.Flags {
			name, want := f.Names()[0], f.(documentedFlag).GetCategory()
			if listed[name] != want || want == "" {
				t.Errorf("%s: --%s of the group %q is in %q", c.Name, name, want, listed[name])
			}
			delete(listed, name)
		}
		if len(listed) > 0 {
			t.Errorf("%s: unknown flags %v", c.Name, listed)
		}
	}
}

func TestHelpFlag(t *testing.T) {
	t.Setenv("COLUMNS", "")
	help := helpOf(t, "run")
	for _, want := range []string{`
  -m, --model MODEL        use MODEL: openai/MODEL, anthropic/MODEL,
                           gemini/MODEL, openai-compatible/MODEL with
                           --base-url, script:FILE or replay:SESSION
`, `
      --yes                allow the model to act without a sandbox
`, `
      --host [USER@]HOST[:PORT]
                           log in to [USER@]HOST[:PORT]; HOST may be one of
                           ~/.ssh/config; required
`, `
      --network NETWORK    let commands reach NETWORK: none or full (default:
                           none)
`} {
		if !strings.Contains(help, want) {
			t.Errorf("help of run lacks:%sin:\n%s", want, help)
		}
	}
}

// TestExamples checks that each command has two examples, which parse.
func TestExamples(t *testing.T) {
	app := (&program{}).app()
	for _, c := range app.Commands {
		_, examples, _ := strings.Cut(helpOf(t, c.Name), "\nexamples:\n")
		lines := strings.Split(strings.TrimSpace(examples), "\n")
		if len(lines) != 2 {
			t.Errorf("%s has the examples %q", c.Name, lines)
		}
		for _, line := range lines {
			_, args, ok := strings.Cut(line, app.Name+" ")
			if args == "--version" {
				continue
			}
			l, err := parseCommandLine(app, strings.Fields(args))
			if !ok || err != nil || l.command != c.Name {
				t.Errorf("%s: %q is the command %q, error %v", c.Name, line, l.command, err)
			}
		}
	}
}
