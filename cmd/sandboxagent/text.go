package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// oneLine returns any text as one line without control sequences.
func oneLine(s string) string {
	const most = 8 << 10
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strings.Join(strings.Fields(tool.Sanitize(s)), " ")
}

// cut shortens a line to a width in columns. Characters from U+1100 on count as two, which is never
// too little.
func cut(s string, width int) string {
	column, last := 0, 0
	for i, r := range s {
		w := 1
		if r >= 0x1100 && r != '…' {
			w = 2
		}
		if column+w > width {
			return s[:last] + "…"
		}
		column += w
		if column < width {
			last = i + len(string(r))
		}
	}
	return s
}

// argumentNames are the arguments that describe a call, the best first.
var argumentNames = [...]string{
	"command", "file_path", "pattern", "path", "question", "reason", "task", "url", "name", "agent_id",
}

var patchedFile = lazyregexp.New(`(?m)^\*\*\* (?:Add|Update|Delete) File: (.+)$`)

// subject describes a call in a few words.
func subject(arguments string) string {
	var args map[string]any
	if json.Unmarshal([]byte(arguments), &args) != nil {
		return oneLine(arguments)
	}
	if patch, ok := args["patch"].(string); ok {
		var files []string
		for _, m := range patchedFile().FindAllStringSubmatch(patch, 10) {
			files = append(files, m[1])
		}
		return oneLine(strings.Join(files, ", "))
	}
	for _, name := range argumentNames {
		if s, ok := args[name].(string); ok && s != "" {
			return oneLine(s)
		}
	}
	return ""
}

// shortDuration formats a duration for people.
func shortDuration(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// shortCount formats a number of tokens for people.
func shortCount(n int64) string {
	switch {
	case n < 1000:
		return fmt.Sprint(n)
	case n < 1_000_000:
		return fmt.Sprintf("%.1fk", float64(n)/1000)
	}
	return fmt.Sprintf("%.1fM", float64(n)/1_000_000)
}
