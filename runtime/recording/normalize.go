package recording

import (
	"regexp"
	"strings"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// normalizer replaces texts that differ from one run to another by a name.
type normalizer struct {
	name    string
	pattern func() *regexp.Regexp
	// replacement is in the syntax of regexp.Regexp.ReplaceAllString.
	replacement string
}

const (
	isoDate  = `\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z| ?[+-]\d\d:?\d\d)?)?\b`
	longDate = `\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|` +
		`Nov|Dec) [ \d]\d (?:\d\d:\d\d(?::\d\d)?(?: [A-Z]{3,4} \d{4})?| ?\d{4})\b`
	aDuration = `(?:\d+h)?(?:\d+m)?\d+(?:\.\d+)? ?(?:ns|µs|us|ms|s)\b`
)

// normalizers are listed in the package comment.
var normalizers = [...]normalizer{
	{"ids", lazyregexp.New(
		`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`), "<id>"},
	{"temporary paths", lazyregexp.New(
		`((?:/private)?/var/folders/\w+/\w+/T/|/tmp/|/var/tmp/|\\Temp\\|/Temp/)` +
			`(?:[\w.-]*\d{3,}[\w.-]*|tmp[._-]?\w{6,})`), "${1}<temporary>"},
	{"dates", lazyregexp.New(isoDate + "|" + longDate), "<date>"},
	{"durations", lazyregexp.New(`\b(in|after|took) ` + aDuration), "${1} <duration>"},
	{"durations", lazyregexp.New(`\b(?:\d+h)?(?:\d+m)?\d+\.\d+(?:µs|us|ms|s)\b`), "<duration>"},
	{"images", lazyregexp.New(
		`\[an image, ([\w/+.-]+, \d+ bytes); you cannot see images\]`), "[an image, ${1}]"},
}

// normalize replaces the directory, which may be empty, and the matches of all normalizers.
func normalize(text, dir string) string {
	text = replaceDir(text, dir, "<workdir>")
	for _, n := range normalizers {
		text = n.pattern().ReplaceAllString(text, n.replacement)
	}
	return text
}

// replaceDir replaces the name of a directory, also as the start of another name, by a name. It
// leaves the root, and names that only begin with the same letters, such as those of siblings.
func replaceDir(text, dir, by string) string {
	dir = strings.TrimRight(dir, "/")
	if dir == "" || dir == by {
		return text
	}
	var b strings.Builder
	for {
		i := strings.Index(text, dir)
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		end := i + len(dir)
		b.WriteString(text[:i])
		if i > 0 && inName(text[i-1]) || end < len(text) && inName(text[end]) {
			b.WriteString(dir)
		} else {
			b.WriteString(by)
		}
		text = text[end:]
	}
}

// inName reports whether a byte beside the name of a directory continues the name.
func inName(c byte) bool {
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= 0x80
}
