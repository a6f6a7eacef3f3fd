package llmtest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

var (
	stepCommand = regexp.MustCompile(`echo (\d) >> log`)
	stepLine    = regexp.MustCompile(`(?m)^\d$`)
)

// Careful is a model that writes the numbers below steps, at most 10, to the file log, one in each
// call of the shell. Where an interruption leaves it without knowledge of what a call did, it looks
// before it goes on, so that each number is in the file once.
func Careful(steps int) Brain {
	return func(r *Request) Reply {
		have, look := map[string]bool{}, false
		step := map[string]string{} // the number that a call writes
		for _, m := range r.Messages {
			if m.Role == llm.RoleUser && strings.Contains(m.Text(), "made are lost") {
				look = true
			}
			for _, p := range m.Parts {
				switch {
				case p.ToolCall != nil:
					if n := stepCommand.FindStringSubmatch(p.ToolCall.Arguments); n != nil {
						step[p.ToolCall.ID] = n[1]
					}
				case p.ToolResult == nil:
				case strings.Contains(p.ToolResult.Text(), "it may have done"):
					look = true
				case strings.Contains(p.ToolResult.Text(), "changed nothing"):
				case step[p.ToolResult.CallID] != "":
					have[step[p.ToolResult.CallID]] = true
				default: // of a look
					clear(have)
					look = false
					for _, n := range stepLine.FindAllString(p.ToolResult.Text(), -1) {
						have[n] = true
					}
				}
			}
		}
		use := func(command string) Reply {
			return Use(Call{
				Name: "shell", Arguments: fmt.Sprintf(`{"command":%q}`, command),
			})
		}
		if look {
			return use("cat log || true")
		}
		for n := range steps {
			if !have[strconv.Itoa(n)] {
				return use(fmt.Sprintf("echo %d >> log", n))
			}
		}
		return Text("done")
	}
}
