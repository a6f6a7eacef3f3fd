package grep

import (
	"bytes"
	"context"
)

// maxSpans bounds the matches of several lines in one file.
const maxSpans = 100_000

// all searches a file that is in memory as a whole.
func (f *file) all() error {
	for !f.eof && f.err == nil && f.n <= MaxMultiline {
		if f.n == len(f.data) {
			f.grow()
		}
		if err := f.fill(len(f.data)); err != nil {
			return err
		}
	}
	switch {
	case f.err != nil:
		return f.err
	case f.n > MaxMultiline:
		return ErrTooLong
	}
	text := f.data[:f.n]
	if scan := f.pattern.Scan(f.ctx, text); len(scan.cursors) > 0 && scan.find(0) < 0 {
		return nil
	}
	spans, err := f.spans(text)
	if err != nil {
		return err
	}
	for _, span := range spans {
		if max(span[0], span[1]-1) < f.shown {
			continue // its lines are delivered
		}
		first := f.shown + bytes.LastIndexByte(text[f.shown:max(span[0], f.shown)], '\n') + 1
		if first == len(text) { // behind the last line
			break
		}
		// A match ends in the line of its last character.
		last := lineEnd(text, max(span[0], span[1]-1))
		if err := f.around(first); err != nil {
			return err
		}
		for at := first; at <= last && at < len(text); at = f.shown {
			if err := f.deliver(at, trimmed(text, at), true); err != nil {
				return err
			}
		}
		f.after = f.opts.After
	}
	if len(spans) == maxSpans {
		return ErrTooMany
	}
	return f.showAfter(len(text))
}

// spans returns where the matches are. If the context ends, it leaves the text to the search that goes on, until that has ended.
func (f *file) spans(text []byte) ([][]int, error) {
	if len(text) <= shortLine {
		return f.pattern.re.FindAllIndex(text, maxSpans), nil
	}
	found, re := make(chan [][]int, 1), f.pattern.re
	go func() { found <- re.FindAllIndex(text, maxSpans) }()
	select {
	case spans := <-found:
		return spans, nil
	case <-f.ctx.Done():
		f.data = nil
		return nil, context.Cause(f.ctx)
	}
}

// trimmed returns where the line ends, without its ending, that begins at a position.
func trimmed(text []byte, start int) int {
	end := lineEnd(text, start)
	if end < len(text) && bytes.HasSuffix(text[start:end], []byte("\r")) {
		end--
	}
	return end
}
