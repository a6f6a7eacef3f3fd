package gitrepo

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
)

// Setting is one line of a git configuration. The section and the key are in lower case.
type Setting struct {
	Section, Subsection, Key string
	Value                    string
	// Bare is true for a key without a value, which means true.
	Bare bool
}

// errConfig means that git would refuse a configuration.
var errConfig = errors.New("the git configuration is malformed")

// ParseConfig reads a git configuration, without the files that it includes.
func ParseConfig(content []byte) ([]Setting, error) {
	p := &configParser{rest: bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))}
	for p.blank(); len(p.rest) > 0; p.blank() {
		switch c := p.rest[0]; {
		case c == '[':
			if !p.header() {
				return nil, errConfig
			}
		case isLetter(c) && p.section != "":
			if !p.setting() {
				return nil, errConfig
			}
		default:
			return nil, errConfig
		}
	}
	return p.settings, nil
}

type configParser struct {
	rest                []byte
	section, subsection string
	settings            []Setting
}

// next consumes one byte. A line ending, of one byte or two, and the end of the text are "\n".
func (p *configParser) next() byte {
	if len(p.rest) == 0 {
		return '\n'
	}
	if bytes.HasPrefix(p.rest, []byte("\r\n")) {
		p.rest = p.rest[1:]
	}
	c := p.rest[0]
	p.rest = p.rest[1:]
	return c
}

// blank skips white space and comments.
func (p *configParser) blank() {
	for len(p.rest) > 0 {
		switch p.rest[0] {
		case ' ', '\t', '\r', '\n':
			p.rest = p.rest[1:]
		case '#', ';':
			p.comment()
		default:
			return
		}
	}
}

func (p *configParser) comment() {
	if i := bytes.IndexByte(p.rest, '\n'); i >= 0 {
		p.rest = p.rest[i:]
	} else {
		p.rest = nil
	}
}

// header reads [section], [section "subsection"] or, as git once wrote it, [section.subsection].
func (p *configParser) header() bool {
	p.next()
	n := 0
	for n < len(p.rest) && (isLetter(p.rest[n]) || isDigit(p.rest[n]) || p.rest[n] == '-' ||
		p.rest[n] == '.') {
		n++
	}
	name := strings.ToLower(string(p.rest[:n]))
	p.rest = p.rest[n:]
	p.section, p.subsection, _ = strings.Cut(name, ".")
	if p.section == "" {
		return false
	}
	c := p.next()
	if c != ' ' && c != '\t' {
		return c == ']'
	}
	for c == ' ' || c == '\t' {
		c = p.next()
	}
	if c != '"' {
		return false
	}
	var sub []byte
	for c = p.next(); c != '"'; c = p.next() {
		if c == '\\' {
			c = p.next()
		}
		if c == '\n' || c == 0 {
			return false
		}
		sub = append(sub, c)
	}
	p.subsection = string(sub)
	return p.next() == ']'
}

// setting reads a key and its value.
func (p *configParser) setting() bool {
	n := 0
	for n < len(p.rest) && (isLetter(p.rest[n]) || isDigit(p.rest[n]) || p.rest[n] == '-') {
		n++
	}
	s := Setting{
		Section: p.section, Subsection: p.subsection,
		Key: strings.ToLower(string(p.rest[:n])),
	}
	p.rest = p.rest[n:]
	c := p.next()
	for c == ' ' || c == '\t' {
		c = p.next()
	}
	ok := true
	switch c {
	case '\n':
		s.Bare = true
	case '#', ';':
		p.comment()
		s.Bare = true
	case '=':
		s.Value, ok = p.value()
	default:
		ok = false
	}
	p.settings = append(p.settings, s)
	return ok
}

// value reads the text after an equals sign, without unquoted white space around it. A backslash at
// the end of a line continues it.
func (p *configParser) value() (string, bool) {
	var out []byte
	keep := 0 // the length of out without trailing white space
	quoted := false
	for {
		c := p.next()
		switch {
		case c == 0:
			return "", false
		case c == '\n':
			return string(out[:keep]), !quoted
		case !quoted && (c == '#' || c == ';'):
			p.comment()
			return string(out[:keep]), true
		case c == '"':
			quoted = !quoted
			keep = len(out)
			continue
		case !quoted && (c == ' ' || c == '\t' || c == '\r'):
			if len(out) > 0 {
				out = append(out, c)
			}
			continue
		case c == '\\':
			switch c = p.next(); c {
			case '\n':
				if len(p.rest) == 0 {
					return string(out[:keep]), !quoted
				}
				continue
			case '"', '\\':
			case 'n':
				c = '\n'
			case 't':
				c = '\t'
			case 'b':
				c = '\b'
			default:
				return "", false
			}
		}
		out = append(out, c)
		keep = len(out)
	}
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }

// IsTrue reports whether git takes the value of a setting for true.
func (s Setting) IsTrue() bool {
	if s.Bare {
		return true
	}
	switch strings.ToLower(s.Value) {
	case "true", "yes", "on":
		return true
	}
	n, err := strconv.Atoi(s.Value)
	return err == nil && n != 0
}

// FormatConfig returns a configuration that git reads as the settings.
func FormatConfig(settings []Setting) []byte {
	var b strings.Builder
	var last Setting
	for i, s := range settings {
		if i == 0 || s.Section != last.Section || s.Subsection != last.Subsection {
			b.WriteString("[" + s.Section)
			if s.Subsection != "" {
				b.WriteString(` "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s.Subsection) + `"`)
			}
			b.WriteString("]\n")
		}
		last = s
		b.WriteString("\t" + s.Key)
		if !s.Bare {
			b.WriteString(` = "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\b",
				`\b`).Replace(s.Value) + `"`)
		}
		b.WriteByte('\n')
	}
	return []byte(b.String())
}
