package v4a

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
)

// Replace replaces the lines of text that old matches from line first on, which [Find] has
// returned. It replaces whole lines and changes nothing else.
//
// Lines that old and replacement have in common stay byte by byte as they are in text. The others
// get the line ending of most of the replaced lines, and the indentation of text where old has
// another one. The last line ends as the replaced one did, so that a text without a final newline
// stays so. Replace reports false if the indentation of a new line does not follow from that of the
// others, because a guess might change the meaning of the text.
func Replace(text, old, replacement string, first int) (string, bool) {
	lines, was, now := split(text), split(old), split(replacement)
	at := first - 1
	have := lines[at : at+len(was)]
	if !strings.HasSuffix(old, "\n") && (replacement == "" || strings.HasSuffix(replacement, "\n")) {
		// Old has no line break at its end, and so the one in the text is not replaced.
		now = append(now, line{})
	}
	indent := newIndents(texts(was), texts(have), texts(now))
	end := ending(have)
	if have[0].end == "" {
		end = ending(lines)
	}
	made := make([]line, len(now))
	for i, k := range common(texts(was), texts(now)) {
		if k >= 0 {
			made[i] = line{have[k].text, cmp.Or(have[k].end, end)}
			continue
		}
		indented, ok := indent.apply(now[i].text)
		if !ok {
			return "", false
		}
		made[i] = line{indented, end}
	}
	if len(made) > 0 {
		made[len(made)-1].end = have[len(have)-1].end
	}
	var b strings.Builder
	for _, part := range [][]line{lines[:at], made, lines[at+len(was):]} {
		for _, l := range part {
			b.WriteString(l.text)
			b.WriteString(l.end)
		}
	}
	return b.String(), true
}

// common returns for each line of now the index of the same line in was, or -1, by a longest common
// subsequence.
func common(was, now []string) []int {
	// Larger texts would need too much memory; only their common start and end are found.
	const largest = 4 << 20
	kept := slices.Repeat([]int{-1}, len(now))
	from, n, m := 0, len(was), len(now)
	for from < n && from < m && was[from] == now[from] {
		kept[from] = from
		from++
	}
	for n > from && m > from && was[n-1] == now[m-1] {
		n, m = n-1, m-1
		kept[m] = n
	}
	was, now = was[from:n], now[from:m]
	if len(was)*len(now) > largest {
		return kept
	}
	// length[i][j] is the number of lines that was[i:] and now[j:] have in common.
	length := make([][]int32, len(was)+1)
	for i := range length {
		length[i] = make([]int32, len(now)+1)
	}
	for i := len(was) - 1; i >= 0; i-- {
		for j := len(now) - 1; j >= 0; j-- {
			if was[i] == now[j] {
				length[i][j] = length[i+1][j+1] + 1
			} else {
				length[i][j] = max(length[i+1][j], length[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(was) && j < len(now); {
		switch {
		case was[i] == now[j]:
			kept[from+j] = from + i
			i, j = i+1, j+1
		case length[i+1][j] >= length[i][j+1]:
			i++
		default:
			j++
		}
	}
	return kept
}

// indents maps the indentation of one text to that of another.
type indents struct {
	// known maps each indentation to that in the other text; unclear holds those for which it is not
	// always the same.
	known   map[string]string
	unclear map[string]bool
	// same reports that both texts have the same indentation.
	same bool
}

// newIndents compares lines of two texts that differ at most in white space and punctuation, to
// indent the lines now.
func newIndents(was, have, now []string) indents {
	in := indents{known: map[string]string{}, unclear: map[string]bool{}, same: true}
	for i := range was {
		from, to := leading(was[i]), leading(have[i])
		if from == was[i] || to == have[i] {
			continue // An empty line has no indentation.
		}
		if other, ok := in.known[from]; ok && other != to {
			in.unclear[from] = true
		}
		in.known[from] = to
		in.same = in.same && from == to
	}
	if to := in.known[""]; to != "" && len(in.known) == 1 && allBegin(now, to) {
		// They have the indentation of the file, or are one step deeper than the old lines.
		for _, s := range now {
			in.unclear[leading(s)] = true
		}
	}
	return in
}

// allBegin reports whether all lines that have any text start with prefix.
func allBegin(lines []string, prefix string) bool {
	return !slices.ContainsFunc(lines, func(s string) bool {
		return leading(s) != s && !strings.HasPrefix(s, prefix)
	})
}

func leading(s string) string {
	return s[:len(s)-len(strings.TrimLeftFunc(s, unicode.IsSpace))]
}

// apply returns the line s, indented for the other text.
func (in indents) apply(s string) (string, bool) {
	from := leading(s)
	if in.same || from == s {
		return s, true
	}
	to, ok := in.known[from]
	if in.unclear[from] {
		return "", false
	}
	if !ok {
		if to, ok = in.derive(from); !ok {
			return "", false
		}
	}
	return to + s[len(from):], true
}

// derive derives an unknown indentation from the known ones, if each text uses only one character
// and the known depths are proportional.
func (in indents) derive(from string) (string, bool) {
	was, have := byte(0), byte(0)
	type depth struct{ from, to int }
	var depths []depth
	for f, t := range in.known {
		was, have = sameChar(was, onlyChar(f)), sameChar(have, onlyChar(t))
		depths = append(depths, depth{len(f), len(t)})
	}
	char := onlyChar(from)
	if char != 0 && char != mixed && char == have && was != 0 && was != mixed && was != char {
		return from, true // the new lines have the indentation of the file already
	}
	was = sameChar(was, char)
	if was == mixed || have == mixed || len(in.unclear) > 0 || len(depths) == 0 {
		return "", false
	}
	slices.SortFunc(depths, func(a, b depth) int { return cmp.Compare(a.from, b.from) })
	low, high := depths[0], depths[len(depths)-1]
	if len(depths) == 1 && was != have && have != 0 {
		// One depth defines the ratio of the two characters, if both are in use.
		low = depth{}
	}
	if len(depths) == 1 && was == have && scaled(len(from), low.from, low.to) {
		// Either the old text is shifted or its steps have another width; the results would differ.
		return "", false
	}
	rise, run := high.to-low.to, high.from-low.from
	switch {
	case run == 0 && (was == have || have == 0):
		rise, run, have = 1, 1, was
	case run == 0 || rise < 0:
		return "", false
	}
	for _, d := range depths {
		if (d.to-low.to)*run != (d.from-low.from)*rise {
			return "", false
		}
	}
	steps := (len(from) - low.from) * rise
	if n := low.to + steps/run; steps%run == 0 && n >= 0 {
		return strings.Repeat(string(rune(have)), n), true
	}
	return "", false
}

// scaled reports whether scaling depth by to/from gives another result than shifting it by to-from.
func scaled(depth, from, to int) bool {
	return from != to && from > 0 && to > 0 && depth != from && depth*to%from == 0
}

// mixed stands for an indentation of several characters.
const mixed = 0xFF

// onlyChar returns the character of which s consists; 0 if it is empty.
func onlyChar(s string) byte {
	switch {
	case s == "":
		return 0
	case strings.Count(s, s[:1]) == len(s):
		return s[0]
	}
	return mixed
}

func sameChar(a, b byte) byte {
	switch {
	case a == 0 || a == b:
		return b
	case b == 0:
		return a
	}
	return mixed
}
