// Package gitignore decides which files the ignore files of a git repository exclude. It follows
// what git does, byte for byte, also where that differs from git's manual. Names are
// slash-separated; letter case always counts.
//
// The package reads no files: callers parse what they read, stack it folder by folder, and ask
// about one entry at a time. As in git, nothing below an ignored folder can be brought back, so
// callers do not descend into one.
package gitignore

import (
	"bytes"
	"strings"
)

// Decision is what ignore rules say about a file or folder.
type Decision int

const (
	// None means that no rule speaks about it.
	None Decision = iota
	// Ignore means that it is excluded.
	Ignore
	// Include means that a rule with a leading ! brings it back.
	Include
)

// Rules are the patterns of one ignore file. They are read-only and may be used concurrently.
type Rules struct {
	rules []rule
}

// Parse reads the content of an ignore file. There are no malformed files: a pattern that makes no
// sense matches nothing.
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

// Match tells what the last matching rule says about name, which is relative to the folder of the
// ignore file.
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

// Stack holds the rules that are in force in one folder: those of its own ignore file and of all
// that enclose it. A nil Stack has no rules. A Stack is read-only and may be used concurrently.
type Stack struct {
	outer *Stack
	dir   string // with a slash at its end, or empty
	rules *Rules
}

// Push returns the stack with rules added, which take precedence over those in s. They stand in the
// folder dir; it is given by its name below some top folder, the same for the whole stack, or as ""
// for the top itself.
func (s *Stack) Push(dir string, rules *Rules) *Stack {
	if len(rules.rules) == 0 {
		return s
	}
	if dir != "" {
		dir += "/"
	}
	return &Stack{outer: s, dir: dir, rules: rules}
}

// Ignored tells whether the entry name, given by its name below the top folder, is excluded. It
// looks at the entry alone: one in an ignored folder is excluded as well, but not by its own name.
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
