// Package gitignore decides which files the ignore files of a git repository exclude. It matches as
// git does, byte for byte, also where that differs from git's manual. Names are slash-separated and
// case-sensitive.
//
// The package reads no files: callers parse their content, stack the rules directory by directory,
// and check one entry at a time. As in git, no rule includes a file below an ignored directory, so
// callers do not descend into one.
package gitignore

import (
	"bytes"
	"strings"
)

// Decision is the result of ignore rules for a file or directory.
type Decision int

const (
	// None means that no rule matches.
	None Decision = iota
	// Ignore means that a rule excludes it.
	Ignore
	// Include means that a rule with a leading ! includes it.
	Include
)

// Rules are the patterns of one ignore file. They are read-only and may be used concurrently.
type Rules struct {
	rules []rule
}

// Parse parses the content of an ignore file. A malformed pattern matches nothing.
func Parse(content []byte) *Rules {
	r := &Rules{}
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	for line := range bytes.Lines(content) {
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if rule, ok := parseRule(string(line)); ok {
			r.rules = append(r.rules, rule)
		}
	}
	return r
}

// Match returns the decision of the last rule that matches name, which is relative to the directory
// of the ignore file.
func (r *Rules) Match(name string, isDir bool) Decision {
	base := name[strings.LastIndexByte(name, '/')+1:]
	for i := len(r.rules) - 1; i >= 0; i-- {
		rule := &r.rules[i]
		if rule.matches(name, base, isDir) {
			if rule.include {
				return Include
			}
			return Ignore
		}
	}
	return None
}

// Stack holds the rules in force in one directory: those of its ignore file and of the directories
// above it. A nil Stack has no rules. A Stack is read-only and may be used concurrently.
type Stack struct {
	outer *Stack
	dir   string // with a trailing slash, or empty
	rules *Rules
}

// Push returns a stack of s and the rules of the directory dir, which take precedence. Dir is
// relative to a top directory, the same for the whole stack; "" is the top itself.
func (s *Stack) Push(dir string, rules *Rules) *Stack {
	if len(rules.rules) == 0 {
		return s
	}
	if dir != "" {
		dir += "/"
	}
	return &Stack{outer: s, dir: dir, rules: rules}
}

// Ignored reports whether the rules exclude the entry name, relative to the top directory. It
// ignores the directories above the entry, which may be excluded themselves.
func (s *Stack) Ignored(name string, isDir bool) bool {
	for ; s != nil; s = s.outer {
		below, ok := strings.CutPrefix(name, s.dir)
		if !ok || below == "" {
			continue
		}
		if d := s.rules.Match(below, isDir); d != None {
			return d == Ignore
		}
	}
	return false
}
