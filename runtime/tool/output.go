package tool

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io/fs"
	"sync"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// recorder is what Call.Out is: it keeps all bytes, in memory while they are few and in the spool
// from then on, and the part of them that the model will see.
type recorder struct {
	mu       sync.Mutex
	id       string
	spool    Spool
	onOutput func([]byte)

	sum    hash.Hash
	size   int64
	memory []byte
	file   SpoolFile
	// lost is why not all bytes were kept, or nil.
	lost   error
	closed bool

	cleaner cleaner
	cutter  cutter
	cleaned []byte
	// last is the last byte of the cleaned text.
	last byte
}

var errNoSpool = errors.New("there is nowhere to keep it")

func newRecorder(
	id string, limit Limit, mode cleanMode, spool Spool, onOutput func([]byte),
) *recorder {
	return &recorder{
		id: id, spool: spool, onOutput: onOutput, sum: sha256.New(),
		cleaner: cleaner{mode: mode}, cutter: cutter{limit: limit},
	}
}

// Write never fails for size, and not if the spool fails either: the outcome tells. It fails after
// the call has ended.
func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, fs.ErrClosed
	}
	if len(p) == 0 {
		return 0, nil
	}
	r.keep(p)
	r.cleaned = r.cleaner.append(r.cleaned[:0], p)
	r.show(r.cleaned)
	if r.onOutput != nil {
		r.onOutput(p)
	}
	return len(p), nil
}

// show hands cleaned text to the cutter.
func (r *recorder) show(p []byte) {
	if len(p) > 0 {
		r.cutter.write(p)
		r.last = p[len(p)-1]
	}
}

// keep adds p to all bytes.
func (r *recorder) keep(p []byte) {
	r.size += int64(len(p))
	r.sum.Write(p)
	switch {
	case r.lost != nil:
	case r.file != nil:
		r.lose(write(r.file, p))
	case r.size <= event.InlineLimit:
		r.memory = append(r.memory, p...)
	default:
		r.lose(r.open(p))
	}
}

// open moves from memory to the spool.
func (r *recorder) open(p []byte) error {
	memory := r.memory
	r.memory = nil
	if r.spool == nil {
		return errNoSpool
	}
	file, err := r.spool.Create(r.id)
	if err != nil {
		return err
	}
	r.file = file
	if err := write(file, memory); err != nil {
		return err
	}
	return write(file, p)
}

// store puts an output that is in memory into the spool as well, so that the model can read what it
// is not shown.
func (r *recorder) store() error {
	file, err := r.spool.Create(r.id)
	if err != nil {
		return err
	}
	return errors.Join(write(file, r.memory), file.Close())
}

func write(f SpoolFile, p []byte) error {
	_, err := f.Write(p)
	return err
}

// lose notes that bytes are missing from the file, which is then of no use.
func (r *recorder) lose(err error) {
	if err == nil {
		return
	}
	r.lost = err
	if r.file != nil {
		_ = r.file.Close() // The first error tells more.
		r.file = nil
	}
}

// finish ends the output with trailer, on a line of its own. It returns all of it and the text for
// the model, who can read what is in the spool if readable is set.
func (r *recorder) finish(
	trailer string, readable bool,
) (out event.Output, text string, truncated bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.cleaned = r.cleaner.flush(r.cleaned[:0])
	r.show(r.cleaned)
	trailer = (&cleaner{}).all(trailer)
	if trailer != "" {
		if r.size > 0 && r.last != '\n' {
			r.keep([]byte{'\n'})
			r.show([]byte{'\n'})
		}
		r.keep([]byte(trailer))
	}
	// What the tool says of its output is shown whole, unless it is an output by itself.
	if chars := utf8.RuneCountInString(trailer); chars > r.cutter.limit.Chars/2 ||
		r.size == int64(len(trailer)) {
		r.cutter.write([]byte(trailer))
		trailer = ""
	}
	out = event.Output{Size: r.size, SHA256: hex.EncodeToString(r.sum.Sum(nil)), Inline: r.memory}
	if r.file != nil {
		if err := r.file.Close(); err != nil {
			r.lost = err
		} else {
			out.File, out.OpenFile = r.file.Name(), r.file.Open
		}
	}
	t := r.cutter.cut(trailer)
	readable = readable && r.spool != nil && nameable().MatchString(r.id)
	if t.truncated && readable && r.file == nil && r.lost == nil {
		r.lost = r.store()
	}
	return out, t.text(r.where(readable)) + trailer, t.truncated
}

// nameable is what can stand after output:// in a sentence.
var nameable = lazyregexp.New(`^[A-Za-z0-9_.:-]{1,128}$`)

// where says how the model can see what was left out; readable that it can read the output by its
// ID.
func (r *recorder) where(readable bool) string {
	switch {
	case r.lost != nil:
		return "The full output was not kept; run a narrower call to see more."
	case readable:
		return "The full output is " + outputScheme + r.id +
			": read parts of it with read_file, or search it with grep."
	default:
		return "Run a narrower call to see more."
	}
}
