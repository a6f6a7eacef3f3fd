package grep

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
)

// searchLong searches the line at kept, which does not fit into data.
func (f *file) searchLong() error {
	if f.piece == nil {
		f.piece = make([]byte, min(pieceSize, f.size))
	}
	rest := &longLine{f: f, now: f.data[f.kept:f.n]}
	rest.hold()
	var match bool
	if size := f.pattern.textSize(); size > 0 {
		match = rest.contains(f.pattern.finders, size)
	} else {
		match = f.pattern.re.MatchReader(f.pattern.reader(f.ctx, bufio.NewReader(rest)))
	}
	// Read the rest of the line, and report an error of the reads before.
	if _, err := io.Copy(io.Discard, rest); err != nil {
		return err
	}
	var err error
	switch {
	case match:
		err = f.showAround(f.kept)
	default:
		err = f.showAfter(f.kept)
	}
	if err == nil && (match || f.after > 0) {
		if !match {
			f.after--
		}
		f.count(f.kept)
		text := f.data[f.kept:min(f.n, f.kept+rest.size)]
		err = f.call(text, len(text) < rest.size, match)
	}
	if match {
		f.after = f.opts.After
	}
	f.count(f.kept)
	f.line++
	f.n = copy(f.data, rest.behind)
	f.kept, f.counted, f.shown = 0, 0, 0
	return err
}

// textSize returns the length of the longest literal if exactly the lines with one of the literals
// match; 0 if the expression has to be tried.
func (p *Pattern) textSize() int {
	size := 0
	for _, f := range p.finders {
		if f.part != nil {
			return 0
		}
		size = max(size, len(f.text))
	}
	if !p.enough {
		return 0
	}
	return size
}

// contains reports whether the line has one of the texts, the longest of the given size. It stops
// at the end of the line and of ctx, and at an error, which the next Read returns.
func (l *longLine) contains(texts []finder, size int) bool {
	buf := make([]byte, size-1+len(l.f.piece))
	n := 0
	for {
		read, err := l.Read(buf[n:])
		n += read
		for i := range texts {
			if c := texts[i].cursor(buf[:n]); c.next(0) >= 0 {
				return true
			}
		}
		if err != nil {
			return false
		}
		n = copy(buf, buf[n-min(n, size-1):n]) // A text may start in it.
	}
}

// longLine reads one line without its ending.
type longLine struct {
	f *file
	// now is the read, unreturned part of the line, behind the data read after its end.
	now, behind []byte
	// size is the number of returned bytes.
	size int
	// held is true if a carriage return comes next, unless it is part of the line ending.
	held bool
	err  error
}

// Read implements io.Reader.
func (l *longLine) Read(p []byte) (int, error) {
	if l.f.ctx.Err() != nil {
		return 0, context.Cause(l.f.ctx)
	}
	for len(l.now) == 0 {
		if l.err != nil {
			return 0, l.err
		}
		l.next()
	}
	n := copy(p, l.now)
	l.now = l.now[n:]
	l.size += n
	return n, nil
}

// next reads the next piece.
func (l *longLine) next() {
	piece, start := l.f.piece, 1
	if l.held {
		piece[0], start = '\r', 0
	}
	n, err := l.f.r.Read(piece[1:])
	if i := bytes.IndexByte(piece[1:1+n], '\n'); i >= 0 {
		l.now, l.behind, l.err = bytes.TrimSuffix(piece[start:1+i], []byte("\r")), piece[2+i:1+n], io.EOF
		return
	}
	l.now, l.err = piece[start:1+n], err
	l.f.eof = l.f.eof || errors.Is(err, io.EOF)
	l.hold()
}

// hold holds a carriage return at the end of a piece back until the next byte is known.
func (l *longLine) hold() {
	if l.held = l.err == nil && bytes.HasSuffix(l.now, []byte("\r")); l.held {
		l.now = l.now[:len(l.now)-1]
	}
}
