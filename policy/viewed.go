package policy

import (
	"path"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/policy/internal/shell"
)

// viewers are commands that print the files that they name.
var viewers = []string{
	"awk", "bat", "cat", "diff", "egrep", "fgrep", "grep", "head", "jq", "less", "more", "nl", "rg",
	"sed", "tail", "tac",
}

// maxViewed bounds the result of Viewed.
const maxViewed = 32

// Viewed returns words of a command of a POSIX shell that may be files, relative to the directory
// in which it starts, that the command prints: arguments of cat, head, sed, grep and the like. It
// returns at most 32, and none if the command changes its directory.
func Viewed(command string) (names []string) {
	script := shell.Analyze(command, shell.Options{Bash: true})
	for _, c := range script.Commands {
		program := path.Base(c.Args[0])
		if program == "cd" || program == "pushd" {
			return nil
		}
		if !slices.Contains(viewers, program) {
			continue
		}
		for _, word := range c.Args[1:] {
			if len(names) < maxViewed && word != "" && !strings.HasPrefix(word, "-") &&
				!strings.ContainsAny(word, holes) && !slices.Contains(names, word) {
				names = append(names, word)
			}
		}
	}
	return names
}
