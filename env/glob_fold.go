package env

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// matchFold matches one element of a name as doublestar.MatchUnvalidated does, with letters of either case taken for the same. The
// pattern has been validated, has no braces, and is not anyElements.
func matchFold(pattern, name string) bool {
	p, n := 0, 0
	retryPattern, retryName := -1, 0 // after the last star, which took the name up to retryName
	for n < len(name) || p < len(pattern) {
		if p < len(pattern) && pattern[p] == '*' {
			p++
			retryPattern, retryName = p, n
			continue
		}
		if p < len(pattern) && n < len(name) {
			r, size := utf8.DecodeRuneInString(name[n:])
			if ok, length := matchFirst(pattern[p:], r); ok {
				p, n = p+length, n+size
				continue
			}
		}
		if retryPattern < 0 || retryName == len(name) {
			return false
		}
		_, size := utf8.DecodeRuneInString(name[retryName:])
		retryName += size
		p, n = retryPattern, retryName
	}
	return true
}

// matchFirst tells whether what the pattern begins with matches r, and the length of that.
func matchFirst(pattern string, r rune) (ok bool, length int) {
	switch pattern[0] {
	case '?':
		return true, 1
	case '[':
		return matchClass(pattern, r)
	case '\\':
		length = 1
	}
	want, size := utf8.DecodeRuneInString(pattern[length:])
	return anyCase(r, func(r rune) bool { return r == want }), length + size
}

// matchClass tells whether the class that the pattern begins with matches r, and the length of the class.
func matchClass(pattern string, r rune) (ok bool, length int) {
	i := 1
	negated := strings.ContainsRune("!^", rune(pattern[i]))
	if negated {
		i++
	}
	next := func() rune {
		if pattern[i] == '\\' {
			i++
		}
		one, size := utf8.DecodeRuneInString(pattern[i:])
		i += size
		return one
	}
	for pattern[i] != ']' {
		low := next()
		high := low
		if pattern[i] == '-' && pattern[i+1] != ']' {
			i++
			high = next()
		}
		ok = ok || anyCase(r, func(r rune) bool { return low <= r && r <= high })
	}
	return ok != negated, i + 1
}

// anyCase tells whether is holds for a letter in one of its cases.
func anyCase(r rune, is func(rune) bool) bool {
	if is(r) {
		return true
	}
	for other := unicode.SimpleFold(r); other != r; other = unicode.SimpleFold(other) {
		if is(other) {
			return true
		}
	}
	return false
}
