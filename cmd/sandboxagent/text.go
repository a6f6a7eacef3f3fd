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

// columns returns the width of a character: 2 from U+1100 on, which is never too little.
func columns(r rune) int {
	if r >= 0x1100 && r != '…' {
		return 2
	}
	return 1
}

// textRows breaks the lines of any text into rows of at most width columns, without control
// sequences: at a blank, if the second half of a row has one.
func textRows(text string, width int) (rows []string) {
	for line := range strings.SplitSeq(strings.TrimRight(sanitize(text), " \t\n"), "\n") {
		line = row(line)
		start, column, blank := 0, 0, 0
		for i, r := range line {
			if column += columns(r); column > width {
				end := i
				if blank > start+(i-start)/2 {
					end = blank
				}
				rows = append(rows, line[start:end])
				start, column = end, columns(r)
				for _, r := range line[end:i] {
					column += columns(r)
				}
			}
			if r == ' ' {
				blank = i + 1
			}
		}
		rows = append(rows, line[start:])
	}
	return rows
}

// cut shortens a line to a width in columns.
func cut(s string, width int) string {
	column, last := 0, 0
	for i, r := range s {
		w := columns(r)
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
