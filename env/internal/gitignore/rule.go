package gitignore

import (
	"strings"
)

// rule is one line of an ignore file.
type rule struct {
	include bool // the line starts with !
	dirOnly bool // the pattern ends with a slash
	// anchored: the pattern has another slash, so it matches the whole name, not its last element
	anchored bool
	prefix   string
	suffix   string
	kind     kind
	glob     []token // follows prefix; for kind globbed only
}

// kind is the way to match a rule; most need no glob.
type kind int

const (
	never   kind = iota // the pattern is malformed
	exact               // equal to prefix
	ending              // ends in suffix
	globbed             // prefix, then glob
)

// special are the bytes with a meaning in a pattern.
const special = `*?[\`

// parseRule parses one line without its ending; it reports false for a line without a pattern.
func parseRule(line string) (rule, bool) {
	// Like git, stop at a NUL byte.
	line, _, _ = strings.Cut(line, "\x00")
	if line == "" || line[0] == '#' {
		return rule{}, false
	}
	line = trimSpaces(line)
	var r rule
	line, r.include = strings.CutPrefix(line, "!")
	line, r.dirOnly = strings.CutSuffix(line, "/")
	r.anchored = strings.Contains(line, "/")
	if line == "" {
		return rule{}, false
	}
	if r.anchored {
		line = strings.TrimPrefix(line, "/")
	} else if rest, ok := strings.CutPrefix(line, "*"); ok && !strings.ContainsAny(rest, special) {
		r.kind, r.suffix = ending, rest
		return r, true
	}
	at := strings.IndexAny(line, special)
	if at < 0 {
		r.kind, r.prefix = exact, line
		return r, true
	}
	r.prefix = line[:at]
	glob, ok := parseGlob(line[at:], r.anchored)
	if ok {
		r.kind, r.glob = globbed, glob
	}
	return r, true
}

// trimSpaces removes trailing spaces, up to one that a backslash quotes. Tabs stay.
func trimSpaces(line string) string {
	end := 0
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case ' ':
			continue
		case '\\':
			i++
			if i == len(line) {
				return line
			}
		}
		end = i + 1
	}
	return line[:end]
}

func (r *rule) matches(name, base string, isDir bool) bool {
	if r.dirOnly && !isDir {
		return false
	}
	if !r.anchored {
		name = base
	}
	switch r.kind {
	case exact:
		return name == r.prefix
	case ending:
		return strings.HasSuffix(name, r.suffix)
	case globbed:
		rest, ok := strings.CutPrefix(name, r.prefix)
		return ok && matchGlob(r.glob, rest)
	default:
		return false
	}
}
