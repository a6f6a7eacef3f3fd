package vars

import "strings"

// Secret is a secret in a text.
type Secret struct {
	// Start and End are the offsets of its first byte and of the byte behind it.
	Start, End int
	// Kind is for people: "GitHub token", or the name to which the text assigns it.
	Kind string
}

// FindSecrets returns the secrets in s that have a known form, and those that look random and are
// assigned to a name that [IsSecretName] reports, in order. They do not overlap.
//
// The forms are facts of gitleaks' rules and of the issuers' documentation. A value looks random if
// it has at least 16 characters and among them 12 letters and digits in a row, both of them, or 24
// of any of the two.
func FindSecrets(s string) []Secret {
	var all []Secret
	add := func(found Secret) {
		if n := len(all); n > 0 && found.Start < all[n-1].End {
			all[n-1].End = max(all[n-1].End, found.End)
			return
		}
		all = append(all, found)
	}
	set := forms()
	assigned := nextAssigned(s, 0)
	start, end, kind := set.next(s, 0)
	for end > 0 || assigned.End > 0 {
		if end == 0 || assigned.End > 0 && assigned.Start < start {
			add(assigned)
			assigned = nextAssigned(s, assigned.End)
			continue
		}
		add(Secret{start, end, kind})
		start, end, kind = set.next(s, end)
	}
	return all
}

// minAssigned and maxAssigned bound the length of an assigned secret, in bytes.
const (
	minAssigned = 16
	maxAssigned = 1024
)

// nextAssigned returns the first secret that s assigns behind from; its End is 0 without one.
func nextAssigned(s string, from int) Secret {
	// IndexByte is much faster than a loop.
	next := func(sign byte, at int) int {
		if i := strings.IndexByte(s[at:], sign); i >= 0 {
			return at + i
		}
		return len(s)
	}
	equal, colon := next('=', from), next(':', from)
	dull := 0 // the end of the last value that does not look random
	for {
		i := min(equal, colon)
		if i == len(s) {
			return Secret{}
		}
		if i == equal {
			equal = next('=', i+1)
		} else {
			colon = next(':', i+1)
		}
		start := i + 1
		for start < len(s) && start < i+4 && strings.IndexByte(" \t\"'`", s[start]) >= 0 {
			start++
		}
		if start < dull {
			continue
		}
		end := start
		for end < len(s) && end-start <= maxAssigned && secretBytes[s[end]] {
			end++
		}
		if n := end - start; n < minAssigned || n > maxAssigned || !looksRandom(s[start:end]) {
			dull = end
			continue
		}
		if name := nameBefore(s[from:i]); IsSecretName(name) {
			return Secret{start, end, name}
		}
	}
}

// secretBytes are those of assigned secrets.
var secretBytes = func() (set [256]bool) {
	const all = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/_=.~!@#$%^&*-"
	for _, c := range []byte(all) {
		set[c] = true
	}
	return set
}()

// nameBefore returns the name that an assignment behind text is for.
func nameBefore(text string) string {
	text = strings.TrimRight(text[max(0, len(text)-100):], " \t\"'`]:=")
	start := len(text)
	for start > 0 && isNameByte(text[start-1]) {
		start--
	}
	return text[start:]
}
