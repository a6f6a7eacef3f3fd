package v4a

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Match describes where a chunk was applied.
type Match struct {
	// Line of the old file, from one.
	Line  int
	Level Level
	// Appended reports that the chunk had no old lines and was added at the end of the file.
	Appended bool
}

// ConflictError reports a chunk that does not fit the file.
type ConflictError struct {
	// Chunk counts from one, Pos is its line in the patch.
	Chunk, Pos int
	Message    string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("chunk %d (line %d of the patch): %s", e.Chunk, e.Pos, e.Message)
}

// Apply applies chunks to content and returns the result, and one Match for each chunk. Lines that
// no chunk removes stay byte by byte, but the result ends in a newline. Added lines get the line
// ending of most lines and, where the old lines of their chunk have another indentation than the
// file, the indentation of the file. A byte order mark stays. Errors are *ConflictError.
func Apply(content string, chunks []Chunk) (string, []Match, error) {
	const bom = "\uFEFF"
	body, hasBOM := strings.CutPrefix(content, bom)
	lines := split(body)
	f := &file{lines: lines, index: newIndex(texts(lines))}
	matches := make([]Match, 0, len(chunks))
	for i, c := range chunks {
		m, err := f.locate(c)
		if err != nil {
			return "", nil, &ConflictError{Chunk: i + 1, Pos: c.Pos, Message: err.Error()}
		}
		matches = append(matches, m)
	}
	result := join(f.changed(), ending(lines))
	if hasBOM {
		result = bom + result
	}
	return result, matches, nil
}

// line is a line of a file: its text and its line ending, which is empty if the file ends without
// one.
type line struct{ text, end string }

func split(s string) []line {
	lines := make([]line, 0, strings.Count(s, "\n")+1)
	for s != "" {
		text, rest, found := strings.Cut(s, "\n")
		end := ""
		if found {
			end = "\n"
			if strings.HasSuffix(text, "\r") {
				text, end = text[:len(text)-1], "\r\n"
			}
		}
		lines = append(lines, line{text, end})
		s = rest
	}
	return lines
}

func texts(lines []line) []string {
	s := make([]string, len(lines))
	for i, l := range lines {
		s[i] = l.text
	}
	return s
}

// ending returns the line ending of most lines.
func ending(lines []line) string {
	crlf, lf := 0, 0
	for _, l := range lines {
		switch l.end {
		case "\r\n":
			crlf++
		case "\n":
			lf++
		}
	}
	if crlf > lf {
		return "\r\n"
	}
	return "\n"
}

func join(lines []line, end string) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.text)
		if l.end == "" {
			l.end = end
		}
		b.WriteString(l.end)
	}
	return b.String()
}

// file holds a file while the chunks of one update are applied to it, from top to bottom.
type file struct {
	lines []line
	index *index
	// cursor is the line where the search for the next chunk starts.
	cursor int
	edits  []edit
	// appended are lines for the end of the file.
	appended []line
}

// edit replaces count lines from the line at on.
type edit struct {
	at, count int
	lines     []line
}

func (f *file) locate(c Chunk) (Match, error) {
	start, hint, doubtful, err := f.follow(c.Hints)
	if err != nil {
		return Match{}, err
	}
	for _, lines := range variants(c.Lines) {
		old := textsOf(lines, false)
		if len(old) == 0 {
			f.cursor = start
			made, _ := replacement(lines, nil) // without old lines, the indentation is always clear
			f.appended = append(f.appended, made...)
			return Match{Line: len(f.lines) + 1, Appended: true}, nil
		}
		at, level, err := f.find(old, span{from: start, hint: hint, atEnd: c.AtEnd, unique: doubtful})
		if err != nil {
			return Match{}, err
		}
		if at < 0 {
			continue
		}
		made, ok := replacement(lines, f.lines[at:at+len(old)])
		if !ok {
			return Match{}, unclear(f.lines[at:at+len(old)], at, level)
		}
		f.edits = append(f.edits, edit{at, len(old), made})
		f.cursor = at + len(old)
		return Match{Line: at + 1, Level: level}, nil
	}
	return Match{}, f.explain(textsOf(c.Lines, false), start, c.AtEnd)
}

// variants returns the lines of a chunk and, if its old lines end with an empty one, the lines
// without it: a patch often ends a chunk with an empty line that is not in the file.
func variants(lines []Line) [][]Line {
	all := [][]Line{lines}
	for i := len(lines) - 1; i >= 0; i-- {
		if lines[i].Op == '+' {
			continue
		}
		if lines[i].Text == "" {
			all = append(all, slices.Concat(lines[:i], lines[i+1:]))
		}
		break
	}
	return all
}

// textsOf returns the texts of the added lines, or of the others.
func textsOf(lines []Line, added bool) []string {
	var found []string
	for _, l := range lines {
		if (l.Op == '+') == added {
			found = append(found, l.Text)
		}
	}
	return found
}

// replacement returns the lines that replace the old lines of a chunk, which match have in the
// file. New lines get the indentation of the file where the old ones have another one. It reports
// false if that indentation is ambiguous.
func replacement(lines []Line, have []line) ([]line, bool) {
	indent := newIndents(textsOf(lines, false), texts(have), textsOf(lines, true))
	var repl []line
	for _, l := range lines {
		switch l.Op {
		case '+':
			text, ok := indent.apply(l.Text)
			if !ok {
				return nil, false
			}
			repl = append(repl, line{text: text})
		case '-':
			have = have[1:]
		default:
			repl = append(repl, have[0])
			have = have[1:]
		}
	}
	return repl, true
}

// unclear reports that the old lines match have at that index, but that the indentation of new
// lines is ambiguous.
func unclear(have []line, at int, level Level) error {
	return fmt.Errorf("the old lines match only %s, at line %d, and the indentation of the new ones "+
		"is ambiguous; give the lines exactly as in the file:%s", level, at+1, excerpt(texts(have)))
}

// excerpt formats the first lines for a message, each on a separate line.
func excerpt(lines []string) string {
	const most = 8
	var b strings.Builder
	for _, l := range lines[:min(most, len(lines))] {
		b.WriteString("\n  " + quote(l))
	}
	if more := len(lines) - most; more > 0 {
		fmt.Fprintf(&b, "\n  (and %d more)", more)
	}
	return b.String()
}

// follow moves past the lines that the hints name. It returns the start of the search, the line of
// the last hint or -1, and whether the last hint matches several lines.
func (f *file) follow(hints []string) (start, hint int, doubtful bool, err error) {
	start, hint = f.cursor, -1
	for i, text := range hints {
		found, level := []int(nil), Exact
		for ; level < levels; level++ {
			if found = search(f.index.at(level), []string{level.fold(text)}, start, 2); len(found) > 0 {
				break
			}
		}
		if len(found) == 0 {
			where := ""
			if start > 0 {
				where = fmt.Sprintf(" below line %d", start)
			}
			return 0, 0, false, fmt.Errorf("the file has no line %s%s, which the @@ line names", quote(text),
				where)
		}
		// Below the line of an outer hint, the next match is the right one.
		doubtful = i == 0 && level > Exact && len(found) > 1
		hint = found[0]
		start = hint + 1
	}
	return start, hint, doubtful, nil
}

// span bounds where a chunk may match.
type span struct {
	// from is the first line, hint the line of an @@ line, which is tried second, or -1.
	from, hint int
	atEnd      bool
	// unique requires a single match at the exact level too.
	unique bool
}

// find returns the index where old matches, or -1. Several matches at an inexact level are an
// error.
func (f *file) find(old []string, s span) (at int, level Level, err error) {
	for level = Exact; level < levels; level++ {
		lines, pattern := f.index.at(level), level.foldAll(old)
		from := s.from
		if s.atEnd {
			from = max(from, len(lines)-len(pattern))
		}
		found := search(lines, pattern, from, 6)
		exact := level == Exact && !s.unique
		if s.hint >= 0 && (len(found) == 0 || !exact) {
			end := s.hint + len(pattern)
			if end <= len(lines) && (!s.atEnd || end == len(lines)) &&
				len(search(lines[:end], pattern, s.hint, 1)) > 0 {
				found = append(found, s.hint)
			}
		}
		if len(found) > 1 && !exact {
			return 0, level, ambiguous(found, level)
		}
		if len(found) > 0 {
			return found[0], level, nil
		}
	}
	return -1, Exact, nil
}

func ambiguous(found []int, level Level) error {
	var numbers []string
	for _, at := range found {
		numbers = append(numbers, fmt.Sprint(at+1))
	}
	if len(numbers) > 5 {
		numbers = append(numbers[:5], "more")
	}
	how := "the @@ line is ambiguous, and the old lines match " + level.String()
	if level > Exact {
		how = "the old lines match only " + level.String()
	}
	return fmt.Errorf("%s, at several positions: lines %s; give the lines exactly as in the file, "+
		"with more lines around them or an @@ line above",
		how, strings.Join(numbers, ", "))
}

// explain reports why old does not match from the line start on.
func (f *file) explain(old []string, start int, atEnd bool) error {
	var b strings.Builder
	b.WriteString("these lines are not in the file")
	if atEnd {
		b.WriteString(" at its end")
	} else if start > 0 {
		fmt.Fprintf(&b, " below line %d", start)
	}
	b.WriteString(":" + excerpt(old))
	lines, pattern := f.index.at(Punctuation), Punctuation.foldAll(old)
	if found := search(lines, pattern, 0, 1); len(found) > 0 {
		if atEnd && found[0] >= start {
			fmt.Fprintf(&b, "\nThey are at line %d, which is not the end of the file.", found[0]+1)
		} else {
			fmt.Fprintf(&b, "\nThey are at line %d, above the previous chunk or the @@ line; chunks "+
				"must be in the order of the file.", found[0]+1)
		}
		return errors.New(b.String())
	}
	if at, n := nearest(lines, pattern); n > 0 && at+n < len(lines) {
		fmt.Fprintf(&b, "\nThe best match is at line %d; there line %d is %s where the patch has %s.",
			at+1, at+n+1, quote(f.lines[at+n].text), quote(old[n]))
	}
	return errors.New(b.String())
}

// nearest returns the index where most of the first lines of pattern match, and how many.
func nearest(lines, pattern []string) (at, n int) {
	const most = 50
	for i := range lines {
		k := 0
		for k < len(pattern) && k < most && i+k < len(lines) && lines[i+k] == pattern[k] {
			k++
		}
		if k > n && strings.Join(pattern[:k], "") != "" {
			at, n = i, k
		}
	}
	return at, n
}

// changed returns the lines of the file with all edits applied. Edits are in file order and do not
// overlap, because the search for each chunk starts at the end of the previous one.
func (f *file) changed() []line {
	var lines []line
	at := 0
	for _, e := range f.edits {
		lines = append(lines, f.lines[at:e.at]...)
		lines = append(lines, e.lines...)
		at = e.at + e.count
	}
	lines = append(lines, f.lines[at:]...)
	return append(lines, f.appended...)
}
