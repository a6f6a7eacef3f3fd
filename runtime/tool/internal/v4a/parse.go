package v4a

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// Kind is the kind of an operation.
type Kind string

// Kinds of operations.
const (
	Add    Kind = "add"
	Delete Kind = "delete"
	Update Kind = "update"
)

// Op is one operation of a patch.
type Op struct {
	Kind Kind
	// Path is the name of the file in the patch, MoveTo its new name or empty.
	Path, MoveTo string
	// Content is the content of the file of an Add.
	Content string
	// Chunks are the changes of an Update. They may be empty if MoveTo is set.
	Chunks []Chunk
}

// Chunk is one change within a file.
type Chunk struct {
	// Hints are the texts of the @@ lines, outermost first.
	Hints []string
	Lines []Line
	// AtEnd reports that the old lines are the last ones of the file.
	AtEnd bool
	// Pos is the line of the patch where the chunk starts.
	Pos int
}

// Line is a line of a chunk. Op is ' ', '-' or '+'.
type Line struct {
	Op   byte
	Text string
}

// ParseError reports text that is not in the format.
type ParseError struct {
	// Line counts from 1 in the text given to Parse.
	Line    int
	Message string
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("line %d of the patch: %s", e.Line, e.Message)
}

const (
	beginMarker  = "*** Begin Patch"
	endMarker    = "*** End Patch"
	addMarker    = "*** Add File:"
	deleteMarker = "*** Delete File:"
	updateMarker = "*** Update File:"
	moveMarker   = "*** Move to:"
	eofMarker    = "*** End of File"
)

var (
	heredoc = lazyregexp.New(
		`^(?:apply_patch\s+)?<<-?\s*(?:'([A-Za-z_]+)'|"([A-Za-z_]+)"|([A-Za-z_]+))$`)
	// ranges matches the line numbers of a unified diff, which are ignored.
	ranges = lazyregexp.New(`^-\d+(?:,\d+)? \+\d+(?:,\d+)? @@ ?`)
)

// Parse parses a patch. Errors are *ParseError.
func Parse(text string) ([]Op, error) {
	lines, offset, err := unwrap(text)
	if err != nil {
		return nil, err
	}
	p := &parser{lines: lines, offset: offset}
	var ops []Op
	for p.skipBlank(); !p.done(); p.skipBlank() {
		op, err := p.op()
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	if len(ops) == 0 {
		return nil, &ParseError{Line: offset, Message: "no operation between " + beginMarker +
			" and " + endMarker}
	}
	return ops, nil
}

// unwrap returns the lines between the begin and end markers, and the number of lines before them.
func unwrap(text string) (lines []string, offset int, err error) {
	trimmed := strings.TrimSpace(text)
	if trimmed == "" {
		return nil, 0, &ParseError{Line: 1, Message: "the patch is empty"}
	}
	offset = strings.Count(text[:strings.Index(text, trimmed)], "\n")
	lines = strings.Split(trimmed, "\n")
	if m := heredoc().FindStringSubmatch(strings.TrimSpace(lines[0])); m != nil {
		if strings.TrimSpace(lines[len(lines)-1]) != m[1]+m[2]+m[3] || len(lines) < 2 {
			return nil, 0, &ParseError{
				Line:    offset + len(lines),
				Message: "the here-document around the patch is not closed",
			}
		}
		lines, offset = lines[1:len(lines)-1], offset+1
		for len(lines) > 0 && strings.TrimSpace(lines[0]) == "" {
			lines, offset = lines[1:], offset+1
		}
		for len(lines) > 0 && strings.TrimSpace(lines[len(lines)-1]) == "" {
			lines = lines[:len(lines)-1]
		}
	}
	if len(lines) == 0 || strings.TrimSpace(lines[0]) != beginMarker {
		return nil, 0, &ParseError{Line: offset + 1, Message: "the first line must be " + beginMarker}
	}
	if len(lines) < 2 || strings.TrimSpace(lines[len(lines)-1]) != endMarker {
		return nil, 0, &ParseError{Line: offset + len(lines), Message: "the last line must be " +
			endMarker}
	}
	return lines[1 : len(lines)-1], offset + 1, nil
}

type parser struct {
	lines  []string
	pos    int
	offset int
}

func (p *parser) done() bool { return p.pos >= len(p.lines) }

func (p *parser) fail(format string, args ...any) error {
	return &ParseError{Line: p.offset + p.pos + 1, Message: fmt.Sprintf(format, args...)}
}

func (p *parser) skipBlank() {
	for !p.done() && strings.TrimSpace(p.lines[p.pos]) == "" {
		p.pos++
	}
}

// marker returns the text after the marker m if the current line has it.
func (p *parser) marker(m string) (rest string, ok bool) {
	if p.done() {
		return "", false
	}
	rest, ok = strings.CutPrefix(strings.TrimSpace(p.lines[p.pos]), m)
	return strings.TrimSpace(rest), ok
}

func (p *parser) op() (Op, error) {
	var op Op
	for kind, m := range map[Kind]string{Add: addMarker, Delete: deleteMarker, Update: updateMarker} {
		if name, ok := p.marker(m); ok {
			op.Kind, op.Path = kind, name
		}
	}
	if op.Kind == "" {
		return op, p.fail("%s is not an operation; expected %s, %s or %s with a file name",
			quote(p.lines[p.pos]), addMarker, deleteMarker, updateMarker)
	}
	if op.Path == "" {
		return op, p.fail("the file name is missing")
	}
	p.pos++
	switch op.Kind {
	case Add:
		op.Content = p.content()
	case Update:
		return p.update(op)
	}
	return op, nil
}

// content parses the lines of an added file. An empty line counts as an added one if more added
// lines follow.
func (p *parser) content() string {
	var b strings.Builder
	for !p.done() {
		start := p.pos
		p.skipEmpty()
		if p.done() || !strings.HasPrefix(p.lines[p.pos], "+") {
			break
		}
		b.WriteString(strings.Repeat("\n", p.pos-start))
		b.WriteString(p.lines[p.pos][1:])
		b.WriteByte('\n')
		p.pos++
	}
	return b.String()
}

func (p *parser) skipEmpty() {
	for !p.done() && strings.TrimSuffix(p.lines[p.pos], "\r") == "" {
		p.pos++
	}
}

func (p *parser) update(op Op) (Op, error) {
	if to, ok := p.marker(moveMarker); ok {
		if to == "" {
			return op, p.fail("the new file name is missing")
		}
		op.MoveTo = to
		p.pos++
	}
	for p.skipBlank(); !p.done(); p.skipBlank() {
		_, isChunk := p.hint()
		if !isChunk && (len(op.Chunks) > 0 ||
			strings.HasPrefix(strings.TrimSpace(p.lines[p.pos]), "***")) {
			break
		}
		c, err := p.chunk()
		if err != nil {
			return op, err
		}
		op.Chunks = append(op.Chunks, c)
	}
	if len(op.Chunks) == 0 && op.MoveTo == "" {
		p.pos--
		return op, p.fail("the update of %s has no chunk", quote(op.Path))
	}
	return op, nil
}

// hint returns the text of an @@ line.
func (p *parser) hint() (text string, ok bool) {
	if p.done() {
		return "", false
	}
	line := strings.TrimSpace(p.lines[p.pos])
	if line == "@@" {
		return "", true
	}
	line, ok = strings.CutPrefix(line, "@@ ")
	return ranges().ReplaceAllString(line, ""), ok
}

func (p *parser) chunk() (Chunk, error) {
	c := Chunk{Pos: p.offset + p.pos + 1}
	for text, ok := p.hint(); ok; text, ok = p.hint() {
		if text != "" {
			c.Hints = append(c.Hints, text)
		}
		p.pos++
	}
	for ; !p.done(); p.pos++ {
		line := strings.TrimSuffix(p.lines[p.pos], "\r")
		if strings.TrimSpace(line) == eofMarker && line[0] != ' ' {
			if len(c.Lines) == 0 {
				return c, p.fail("the chunk has no lines")
			}
			c.AtEnd = true
			p.pos++
			return c, nil
		}
		if line == "" {
			c.Lines = append(c.Lines, Line{Op: ' '})
			continue
		}
		if op := line[0]; op == ' ' || op == '-' || op == '+' {
			c.Lines = append(c.Lines, Line{Op: op, Text: line[1:]})
			continue
		}
		if marker := strings.TrimSpace(line); !strings.HasPrefix(marker, "@@") &&
			!strings.HasPrefix(marker, "***") {
			return c, p.fail("%s starts with none of space, - and +; a line that is kept needs a "+
				"space in front", quote(line))
		}
		break
	}
	if len(c.Lines) == 0 {
		p.pos--
		return c, p.fail("the chunk has no lines")
	}
	return c, nil
}

// quote formats a line of a patch or a file for a message, cut to a readable length.
func quote(s string) string {
	const most = 120
	s = strings.ToValidUTF8(s, "\uFFFD")
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most]) + "…"
	}
	return fmt.Sprintf("%q", s)
}
