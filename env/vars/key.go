package vars

import (
	"strings"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

const (
	keyBegin = "-----BEGIN "
	keyEnd   = "-----END "
	// longLine is the least length of a line of base64 that shows that a key without an end is one,
	// and mixedLine that of base64 behind other text, such as the name of a file.
	longLine, mixedLine = 16, 40
)

var (
	keyBeginRE = lazyregexp.New(`^-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z0-9 ]{0,40}-----`)
	keyEndRE   = lazyregexp.New(`-----END [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z0-9 ]{0,40}-----`)
	// keyFieldRE matches a header in a key.
	keyFieldRE = lazyregexp.New(`^[A-Z][A-Za-z0-9-]*: `)
)

// PrivateKey returns the end of the private key in PEM form at the start of s, also of one with
// numbers of lines, or with \n for the ends of lines. The end is 0 without a key. A key without
// its last line ends with the last line of base64. Open reports that more text could be a part of
// it.
func PrivateKey(s string) (end int, open bool) {
	if !strings.HasPrefix(s, keyBegin) {
		return 0, strings.HasPrefix(keyBegin, s)
	}
	i := len(keyBeginRE().FindString(s))
	if i == 0 {
		return 0, len(s) < len(keyBegin)+100 && !strings.Contains(s, "\n")
	}
	body, long := 0, false // the end of the last line of base64
	for {
		line, next := cutKeyLine(s[i:])
		if m := endOfKey(line); m != nil {
			if text := keyText(line[:m[0]]); isBase64(text) && (body > 0 || text != "") {
				return i + m[1], false
			}
		}
		text := keyText(line)
		last := strings.TrimSpace(line)
		switch {
		case next == 0 && body > 0 && last != "" &&
			(strings.HasPrefix(last, keyEnd) || strings.HasPrefix(keyEnd, last)):
			return len(s), true
		case text == "":
		case isBase64(text):
			body, long = i+len(line), long || len(text) >= longLine
		case body == 0 && keyFieldRE().MatchString(text):
		case len(text)-len(strings.TrimRight(text, base64Bytes)) >= mixedLine:
			body, long = i+len(line), true
		case next == 0 && body > 0:
			return body, true
		case long:
			return body, false
		default:
			return 0, next == 0
		}
		if next == 0 {
			return body, true
		}
		i += next
	}
}

// cutKeyLine returns the first line of s, and where the next one starts; 0 without a next.
func cutKeyLine(s string) (line string, next int) {
	at := strings.IndexByte(s, '\n')
	if escaped := strings.Index(s, `\n`); escaped >= 0 && (at < 0 || escaped < at) {
		return s[:escaped], escaped + 2
	}
	if at < 0 {
		return s, 0
	}
	return s[:at], at + 1
}

// endOfKey returns the place of the end of a key in a line, or nil.
func endOfKey(line string) []int {
	if !strings.Contains(line, keyEnd) { // much faster
		return nil
	}
	return keyEndRE().FindStringIndex(line)
}

// keyText returns a line of a key without what surrounds it, such as its number.
func keyText(line string) string {
	const around = "\t \"'>#*|+-"
	line = strings.TrimLeft(line, " \t")
	rest := strings.TrimLeft(line, "0123456789")
	if text := strings.TrimLeft(rest, " \t"); rest != line && text != "" &&
		(strings.IndexByte("|:-", text[0]) >= 0 || rest[0] == '\t') {
		line = text[1:]
	}
	return strings.TrimRight(strings.TrimLeft(line, around), "\\ \t\r\"',;")
}

const base64Bytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="

// isBase64 reports whether s is base64, or words of it of which one is long.
func isBase64(s string) bool {
	run, longest, blank := 0, 0, false
	for i := range len(s) {
		switch c := s[i]; {
		case c == ' ':
			run, blank = 0, true
		case c >= 0x80 || !isWordByte(c) && c != '+' && c != '/' && c != '=':
			return false
		default:
			run++
			longest = max(longest, run)
		}
	}
	return !blank || longest >= longLine
}
