package gitignore

import "strings"

// token is one element of a glob.
type token struct {
	op  op
	lit byte
	set *class
}

type op int

const (
	literal   op = iota // the byte lit
	anyByte             // ?
	inClass             // [...]
	star                // any bytes except slashes
	dirs                // **/ : nothing, or any bytes up to and including a slash
	dirsSlash           // **\/ : any bytes up to and including a slash
	remainder           // ** at the end: any bytes
)

// class is a set of bytes.
type class [4]uint64

func (c *class) add(b byte)      { c[b/64] |= 1 << (b % 64) }
func (c *class) has(b byte) bool { return c[b/64]&(1<<(b%64)) != 0 }

// parseGlob compiles a pattern; it reports false for one that can never match. Two stars differ
// from one only in an anchored pattern. As in git, two stars are special after a slash or at the
// start of pattern, which is the first special byte of the line, and three mean the same as two.
func parseGlob(pattern string, anchored bool) ([]token, bool) {
	var glob []token
	for i := 0; i < len(pattern); {
		switch c := pattern[i]; c {
		case '*':
			end := i + 1
			for end < len(pattern) && pattern[end] == '*' {
				end++
			}
			whole := anchored && end-i > 1 && (i == 0 || pattern[i-1] == '/')
			after := pattern[end:]
			switch {
			case whole && after == "":
				glob = append(glob, token{op: remainder})
			case whole && strings.HasPrefix(after, "/"):
				glob, end = append(glob, token{op: dirs}), end+1
			case whole && strings.HasPrefix(after, `\/`):
				glob, end = append(glob, token{op: dirsSlash}), end+2
			default:
				glob = append(glob, token{op: star})
			}
			i = end
		case '?':
			glob, i = append(glob, token{op: anyByte}), i+1
		case '[':
			set, length, ok := parseClass(pattern[i:])
			if !ok {
				return nil, false
			}
			glob, i = append(glob, token{op: inClass, set: set}), i+length
		case '\\':
			if i+1 == len(pattern) {
				return nil, false
			}
			glob, i = append(glob, token{lit: pattern[i+1]}), i+2
		default:
			glob, i = append(glob, token{lit: c}), i+1
		}
	}
	return glob, true
}

// parseClass compiles the class at the start of pattern and returns its length. It reports false
// for a class without an end, and for one with an unknown name such as [:letters:].
func parseClass(pattern string) (set *class, length int, ok bool) {
	set = &class{}
	i := 1
	negated := i < len(pattern) && (pattern[i] == '!' || pattern[i] == '^')
	if negated {
		i++
	}
	var low byte // the start of a possible range; 0 is none
	for first := true; ; first = false {
		if i >= len(pattern) {
			return nil, 0, false
		}
		c := pattern[i]
		switch {
		case c == ']' && !first:
			if negated {
				for j := range set {
					set[j] = ^set[j]
				}
			}
			set['/'/64] &^= 1 << ('/' % 64)
			return set, i + 1, true
		case c == '-' && low != 0 && i+1 < len(pattern) && pattern[i+1] != ']':
			i++
			if pattern[i] == '\\' {
				i++
			}
			if i >= len(pattern) {
				return nil, 0, false
			}
			for b := int(low); b <= int(pattern[i]); b++ {
				set.add(byte(b))
			}
			low = 0
		case c == '[' && strings.HasPrefix(pattern[i+1:], ":"):
			name, found := className(pattern[i:])
			if !found {
				set.add('[')
				low = '['
				break
			}
			if !set.addNamed(name) {
				return nil, 0, false
			}
			i += len("[:") + len(name) + len(":")
			low = 0
		default:
			if c == '\\' {
				i++
				if i >= len(pattern) {
					return nil, 0, false
				}
				c = pattern[i]
			}
			set.add(c)
			low = c
		}
		i++
	}
}

// className returns the name in a text that starts with [:name:]. It reports false if the next
// closing bracket does not end a name. Without a closing bracket the class around it is malformed
// anyway.
func className(text string) (string, bool) {
	text = text[len("[:"):]
	end := strings.IndexByte(text, ']')
	if end < 1 || text[end-1] != ':' {
		return "", false
	}
	return text[:end-1], true
}

// addNamed adds the bytes of a named class, all ASCII; it reports false for an unknown name.
func (c *class) addNamed(name string) bool {
	var in func(b byte) bool
	upper := func(b byte) bool { return 'A' <= b && b <= 'Z' }
	lower := func(b byte) bool { return 'a' <= b && b <= 'z' }
	digit := func(b byte) bool { return '0' <= b && b <= '9' }
	graph := func(b byte) bool { return ' ' < b && b < 0x7f }
	alnum := func(b byte) bool { return upper(b) || lower(b) || digit(b) }
	switch name {
	case "alnum":
		in = alnum
	case "alpha":
		in = func(b byte) bool { return upper(b) || lower(b) }
	case "blank":
		in = func(b byte) bool { return b == ' ' || b == '\t' }
	case "cntrl":
		in = func(b byte) bool { return b < ' ' || b == 0x7f }
	case "digit":
		in = digit
	case "graph":
		in = graph
	case "lower":
		in = lower
	case "print":
		in = func(b byte) bool { return b == ' ' || graph(b) }
	case "punct":
		in = func(b byte) bool { return graph(b) && !alnum(b) }
	case "space":
		in = func(b byte) bool { return b == ' ' || b == '\t' || b == '\n' || b == '\r' }
	case "upper":
		in = upper
	case "xdigit":
		in = func(b byte) bool { return digit(b) || 'a' <= b && b <= 'f' || 'A' <= b && b <= 'F' }
	default:
		return false
	}
	for b := range byte(0x80) {
		if in(b) {
			c.add(b)
		}
	}
	return true
}

// matchGlob reports whether glob matches all of name. Its time is at most the product of both
// lengths per directory of name: of several stars only the last one is retried, since a longer
// match of an earlier one would leave the later only fewer choices; likewise for dirs.
func matchGlob(glob []token, name string) bool {
	retry := struct{ star, starName, dirs, dirsName int }{star: -1, dirs: -1}
	g, n := 0, 0
	for {
		if g == len(glob) {
			if n == len(name) {
				return true
			}
		} else {
			switch t := glob[g]; t.op {
			case remainder:
				return true
			case star:
				g++
				retry.star, retry.starName = g, n
				continue
			case dirs, dirsSlash:
				g++
				retry.star, retry.dirs, retry.dirsName = -1, g, n
				if t.op == dirs {
					continue
				}
			default:
				if n < len(name) && t.matches(name[n]) {
					g, n = g+1, n+1
					continue
				}
			}
		}
		// The rest after the last star did not match: extend the star by one byte, or else dirs by one
		// directory.
		if retry.star >= 0 && retry.starName < len(name) && name[retry.starName] != '/' {
			retry.starName++
			g, n = retry.star, retry.starName
			continue
		}
		if retry.dirs < 0 {
			return false
		}
		slash := strings.IndexByte(name[retry.dirsName:], '/')
		if slash < 0 {
			return false
		}
		retry.dirsName += slash + 1
		retry.star = -1
		g, n = retry.dirs, retry.dirsName
	}
}

func (t token) matches(b byte) bool {
	switch t.op {
	case literal:
		return b == t.lit
	case anyByte:
		return b != '/'
	default:
		return t.set.has(b)
	}
}
