package grep

import "bytes"

// finder searches for one literal.
type finder struct {
	text []byte
	fold bool
	// rare is the index in text of its rarest byte.
	rare int
	// part, if set, searches for a part of the text without k and s, which have longer case variants
	// beyond ASCII.
	part *finder
}

// The case variants of k and s beyond ASCII.
var (
	kelvin = []byte("\u212a")
	longS  = []byte("\u017f")
)

func newFinder(l literal) finder {
	f := finder{text: []byte(l.text), fold: l.fold, rare: rarest(l.text)}
	if !l.fold {
		return f
	}
	var best []literal
	at := 0
	special := false
	for i := range len(l.text) + 1 {
		if i == len(l.text) || l.text[i] == 'k' || l.text[i] == 's' {
			best = better(best, []literal{{text: l.text[at:i], fold: true}})
			at = i + 1
			special = special || i < len(l.text)
		}
	}
	if special {
		f.part = &finder{fold: true} // matches everywhere
		if len(best) > 0 {
			f.part.text, f.part.rare = []byte(best[0].text), rarest(best[0].text)
		}
	}
	return f
}

// cursor is the search of a finder in one text.
type cursor struct {
	f    *finder
	text []byte
	// at is the last result, small and large the next positions of the rare byte in lower and upper
	// case; len(text) if none.
	at, small, large int
	// enough is true if the cursor finds the whole literal, not only a part of it.
	enough bool
}

func (f *finder) cursor(text []byte) cursor {
	c := cursor{f: f, text: text, at: -1, small: -1, large: -1, enough: true}
	if f.part != nil && (bytes.Contains(text, longS) || bytes.Contains(text, kelvin)) {
		c.f, c.enough = f.part, false
	}
	return c
}

// next returns the next position of the literal from a position on, or -1.
func (c *cursor) next(from int) int {
	if c.at < from && c.at < len(c.text) {
		if c.f.fold {
			c.at = c.folded(from)
		} else if i := bytes.Index(c.text[from:], c.f.text); i >= 0 {
			c.at = from + i
		} else {
			c.at = len(c.text)
		}
	}
	if c.at >= len(c.text) {
		return -1
	}
	return c.at
}

// folded searches for the rare byte in either case, and compares the text around it.
func (c *cursor) folded(from int) int {
	f := c.f
	if len(f.text) == 0 {
		return from
	}
	small := f.text[f.rare]
	large := small
	if 'a' <= small && small <= 'z' {
		large -= 'a' - 'A'
	}
	for at := from + f.rare; ; at++ {
		if c.small < at {
			c.small = indexFrom(c.text, at, small)
		}
		if c.large < at {
			c.large = c.small
			if large != small {
				c.large = indexFrom(c.text, at, large)
			}
		}
		at = min(c.small, c.large)
		if at >= len(c.text) {
			return len(c.text)
		}
		if start := at - f.rare; start+len(f.text) <= len(c.text) &&
			equalFold(c.text[start:start+len(f.text)], f.text) {
			return start
		}
	}
}

// indexFrom returns the next position of a byte from a position on; len(text) if none.
func indexFrom(text []byte, from int, b byte) int {
	if from < len(text) {
		if i := bytes.IndexByte(text[from:], b); i >= 0 {
			return from + i
		}
	}
	return len(text)
}

// equalFold reports whether text equals small, which is in lower case, in any case of ASCII
// letters.
func equalFold(text, small []byte) bool {
	for i, c := range text {
		if lowerByte(c) != small[i] {
			return false
		}
	}
	return true
}
