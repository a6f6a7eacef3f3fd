package ssh

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	sshconfig "github.com/kevinburke/ssh_config"
)

// usedKeywords are those of the ssh_config that say something about the way to a host.
func usedKeywords() []string {
	return []string{
		"certificatefile", "connecttimeout", "globalknownhostsfile", "hashknownhosts", "hostkeyalias", "hostname",
		"identitiesonly", "identityagent", "identityfile", "port", "proxycommand", "proxyjump", "revokedhostkeys",
		"stricthostkeychecking", "user", "userknownhostsfile",
	}
}

// matches reports whether the criteria of a Match block are met. What they ask that is not known here is not met.
func (c *configReader) matches(h blockHead, name string, block *sshconfig.Host) bool {
	for i := 0; i < len(h.criteria); i++ {
		word, negated := strings.CutPrefix(strings.ToLower(h.criteria[i]), "!")
		word, list, inline := strings.Cut(word, "=")
		if word == "all" {
			if negated {
				return false
			}
			continue
		}
		value, known := c.criterion(word)
		if !known {
			c.unmatched(h, word, name, block)
			return false
		}
		if inline {
			_, list, _ = strings.Cut(h.criteria[i], "=")
		} else if i++; i < len(h.criteria) {
			list = h.criteria[i]
		}
		if matchList(list, value) == negated {
			return false
		}
	}
	return true
}

// criterion returns what a criterion of Match looks at.
func (c *configReader) criterion(word string) (value string, known bool) {
	switch word {
	case "host":
		if name := c.get("hostname"); name != "" {
			if full, err := expandTokens(name, map[byte]string{'h': c.alias}); err == nil {
				return full, true
			}
		}
		return c.alias, true
	case "originalhost":
		return c.alias, true
	case "user":
		for _, name := range []string{c.user, c.get("user")} {
			if name != "" {
				return name, true
			}
		}
		return localUser(), true
	case "localuser":
		return localUser(), true
	}
	return "", false
}

// unmatched tells of a block that might have said something. Those for canonical names never do, as names are not made
// canonical, and what they include is of the system's making.
func (c *configReader) unmatched(h blockHead, word, name string, block *sshconfig.Host) {
	used := usedKeywords()
	if word != "final" && word != "canonical" {
		used = append(used, includeKeyword)
	}
	for _, node := range block.Nodes {
		if kv, ok := node.(*sshconfig.KV); ok && slices.Contains(used, strings.ToLower(kv.Key)) {
			c.note(fmt.Sprintf("%s:%d: \"Match %s\" is not supported; what it says does not count", name, h.line, word))
			return
		}
	}
}

// matchList reports whether a string matches a list of patterns with commas. One with an exclamation mark that matches
// excludes it.
func matchList(list, s string) bool {
	found := false
	for p := range strings.SplitSeq(list, ",") {
		p, negated := strings.CutPrefix(p, "!")
		if p == "" || !matchPattern(p, s) {
			continue
		}
		if negated {
			return false
		}
		found = true
	}
	return found
}

// matchPattern reports whether a string matches a pattern, where * is any text and ? any byte.
func matchPattern(pattern, s string) bool {
	star, mark := -1, 0
	p, i := 0, 0
	for i < len(s) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, i
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == s[i]):
			p++
			i++
		case star >= 0: // the last * takes one byte more
			mark++
			p, i = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// expandTokens replaces the tokens of a value, such as %h.
func expandTokens(s string, tokens map[byte]string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i++; i == len(s) {
			return "", errors.New("a percent sign at the end")
		}
		value, ok := tokens[s[i]]
		switch {
		case s[i] == '%':
			value = "%"
		case !ok:
			return "", fmt.Errorf("%%%c is not known here", s[i])
		}
		b.WriteString(value)
	}
	return b.String(), nil
}

// expandVars replaces variables of this process, written ${NAME}.
func expandVars(s string) (string, error) {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "${")
		b.WriteString(before)
		if !ok {
			return b.String(), nil
		}
		name, after, ok := strings.Cut(rest, "}")
		if !ok {
			return "", errors.New("${ is not closed")
		}
		value, ok := os.LookupEnv(name)
		if !ok {
			return "", fmt.Errorf("the variable %s is not set", strconv.Quote(name))
		}
		b.WriteString(value)
		s = after
	}
}

// tilde replaces a leading ~ with the home folder.
func (m machine) tilde(name string) string {
	rest, ok := strings.CutPrefix(name, "~")
	if !ok || rest != "" && rest[0] != '/' && rest[0] != filepath.Separator {
		return name
	}
	return filepath.Join(m.home, rest)
}
