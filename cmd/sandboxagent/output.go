package main

import (
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/term"

	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// streams are the standard streams of the program. What people read goes to out and err, which
// clean it: models, environments and servers choose parts of nearly every text.
type streams struct {
	in io.Reader
	// out removes control sequences if it is a terminal, else it writes as it gets.
	out io.Writer
	// err removes control sequences always, for a terminal may show a file later.
	err io.Writer
	// raw are the streams below out and err, for the output of a command, and for the display of a
	// run, which has control sequences of its own.
	raw rawStreams
}

// rawStreams write as they get.
type rawStreams struct{ out, err io.Writer }

// newStreams returns the streams for in, out and err.
func newStreams(in io.Reader, out, err io.Writer) streams {
	s := streams{in: in, out: out, err: newCleaner(err), raw: rawStreams{out, err}}
	if terminal(out) != nil {
		s.out = newCleaner(out)
	}
	return s
}

// cleaner is a writer that removes control sequences. It is safe for concurrent use.
type cleaner struct {
	w io.Writer

	mu sync.Mutex
	s  *tool.Sanitizer
}

func newCleaner(w io.Writer) *cleaner { return &cleaner{w: w, s: tool.NewSanitizer(w)} }

func (c *cleaner) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.s.Write(b)
}

// terminal returns the terminal of a stream; nil if it has none.
func terminal(stream any) *os.File {
	if c, ok := stream.(*cleaner); ok {
		stream = c.w
	}
	f, ok := stream.(*os.File)
	if !ok || f == nil || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return f
}

// sanitize returns text without control sequences.
func sanitize(text string) string { return tool.Sanitize(text) }

// row returns a line of any text as it is displayed: without control sequences and line breaks.
func row(line string) string {
	return strings.NewReplacer("\n", " ", "\t", "    ").Replace(sanitize(line))
}

// printable returns a writer for the output of a command: unchanged, or, on a terminal, without
// control sequences. The second result flushes it.
func printable(w io.Writer) (io.Writer, func() error) {
	if terminal(w) == nil {
		return w, func() error { return nil }
	}
	s := tool.NewSanitizer(w)
	return s, s.Close
}
