package vars

import (
	"strings"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// The values of assignments, from their start.
var (
	// wordRE matches one word of a shell, quoted or not.
	wordRE = lazyregexp.New(`(?s)^(?:"(?:[^"\\]|\\.)*"?|'[^']*'?|\\.|[^\s"'\\])+`)
	// fieldRE matches the value in a header, in YAML and in JSON. Without quotes it extends to the
	// end of the line.
	fieldRE = lazyregexp.New(`^[ \t]*("(?:[^"\\\r\n]|\\.)*"?|'[^'\r\n]*'?|[^\r\n"' \t][^\r\n"']*)`)
)

// Redact replaces secrets with a known form in s, and the values of names that IsSecretName
// reports, by Mark: behind "=" one word of a shell, behind ":" the rest of the line or a text in
// quotes. It is idempotent.
func Redact(s string) string {
	// A replacement can expose another match beside it. Each round leaves fewer bytes outside of
	// marks, or as many and fewer marks, so the loop ends.
	for {
		// Assignments need whole values.
		t, assigned := redactAssignments(s)
		t, found := forms().replace(t)
		if !assigned && !found {
			return s
		}
		s = t
	}
}

// redactAssignments replaces the values of secret names in s, and reports whether it found one.
func redactAssignments(s string) (string, bool) {
	var b strings.Builder
	done := 0
	for i := 0; i < len(s); i++ {
		if s[i] != '=' && s[i] != ':' || !IsSecretName(assignedName(s[done:i], s[i])) {
			continue
		}
		start, end := assignedValue(s, i)
		if start == end {
			continue
		}
		b.WriteString(s[done:start])
		b.WriteString(Mark)
		done, i = end, end-1
	}
	if done == 0 {
		return s, false
	}
	b.WriteString(s[done:])
	return b.String(), true
}

// assignedName returns the name at the end of before, which an assignment follows; empty without
// one. Before ":" it may be in quotes and have blanks behind it.
func assignedName(before string, sign byte) string {
	if sign == ':' {
		before = strings.TrimRight(before, " \t")
		if before != "" && (before[len(before)-1] == '"' || before[len(before)-1] == '\'') {
			before = before[:len(before)-1]
		}
	}
	start := len(before)
	for start > 0 && isNameByte(before[start-1]) {
		start--
	}
	name := before[start:]
	last := name[strings.LastIndexByte(name, '.')+1:]
	if sign == ':' && strings.EqualFold(last, "key") {
		return "" // a file or a word: "server.key: no such file", "unknown key: x"
	}
	return name
}

func isNameByte(c byte) bool {
	return c == '_' || c == '-' || c == '.' || c < 0x80 && isWordByte(c)
}

// assignedValue returns the start and the end of the value behind the sign at s[at]; they are the
// same if it has none that is a secret.
func assignedValue(s string, at int) (start, end int) {
	rest := s[at+1:]
	if s[at] == '=' {
		m := wordRE().FindStringIndex(rest)
		if m == nil || rest[:m[1]] == Mark || rest[0] == '=' { // a comparison
			return 0, 0
		}
		return at + 1, at + 1 + m[1]
	}
	m := fieldRE().FindStringSubmatchIndex(rest)
	if m == nil || strings.HasPrefix(rest[m[2]:], Mark) || rest[0] == ':' { // text after a mark stays
		return 0, 0
	}
	return at + 1 + m[2], at + 1 + m[3]
}

// RedactArgv returns a copy of argv with secrets redacted in every argument. The value of a flag
// whose name is that of a secret is replaced as a whole, in the same argument or in the next.
func RedactArgv(argv []string) []string {
	out := make([]string, len(argv))
	for i, arg := range argv {
		out[i] = redactArg(arg)
		if i > 0 && isSecretFlag(argv[i-1]) {
			out[i] = Mark
		}
	}
	return out
}

// isSecretFlag reports whether arg is a flag whose value, the next argument, is a secret.
func isSecretFlag(arg string) bool {
	name := strings.TrimLeft(arg, "-")
	return name != "" && len(arg) > len(name) && assignedName(name, '=') == name && IsSecretName(name)
}

// redactArg is Redact for an argument: if it is an assignment to a secret name, the value extends
// to its end, blanks included.
func redactArg(arg string) string {
	first := strings.IndexAny(arg, " \t\r\n\f\v")
	if first < 0 {
		first = len(arg)
	}
	for i := range first {
		if arg[i] == '=' && i+1 < len(arg) && IsSecretName(assignedName(arg[:i], '=')) {
			return Redact(arg[:i+1]) + Mark
		}
	}
	return Redact(arg)
}
