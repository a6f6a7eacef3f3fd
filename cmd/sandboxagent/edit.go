package main

import (
	"encoding/json"
	"strings"
)

// editedLines returns the lines that a call of a tool for editing removes and adds, each with
// a - or + before it.
func editedLines(arguments string) (lines []string) {
	var args struct {
		Patch, Content string
		Old            string `json:"old_string"`
		New            string `json:"new_string"`
	}
	if json.Unmarshal([]byte(arguments), &args) != nil {
		return nil
	}
	for line := range strings.Lines(args.Patch) {
		if line[0] == '+' || line[0] == '-' {
			lines = append(lines, line)
		}
	}
	before, after := splitLines(args.Old), splitLines(args.New+args.Content)
	for len(before) > 0 && len(after) > 0 && before[0] == after[0] {
		before, after = before[1:], after[1:]
	}
	for len(before) > 0 && len(after) > 0 && before[len(before)-1] == after[len(after)-1] {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	for _, line := range before {
		lines = append(lines, "-"+line)
	}
	for _, line := range after {
		lines = append(lines, "+"+line)
	}
	return lines
}

func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}
