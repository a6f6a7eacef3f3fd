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
	"github.com/sandboxagent/sandboxagent/policy/redact"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// recorder is the writer in Call.Out. It keeps all bytes, up to event.InlineLimit in memory and
// more of them in the spool, and the part that the model will see.
type recorder struct {
	mu       sync.Mutex
	id       string
	spool    Spool
	onOutput func([]byte)

	sum    hash.Hash
	size   int64
	memory []byte
	file   SpoolFile
	// lost is the reason why not all bytes were kept, or nil.
	lost   error
	closed bool

	// raw redacts all bytes, and text what the cleaner returns: a control sequence may divide a
	// secret.
	raw, text *redact.Writer
	cleaner   cleaner
	cutter    cutter
	cleaned   []byte
	// last is the last byte of the cleaned text.
	last byte
}

var errNoSpool = errors.New("the session has no spool")

func newRecorder(
	id string, limit Limit, mode cleanMode, spool Spool, redactor *redact.Redactor,
	onOutput func([]byte),
) *recorder {
	r := &recorder{
		id: id, spool: spool, onOutput: onOutput, sum: sha256.New(),
		cleaner: cleaner{mode: mode}, cutter: cutter{limit: limit},
	}
	r.raw, r.text = redactor.NewWriter(r.add), redactor.NewWriter(r.show)
	return r
}

// Write fails only after the call has ended. Failures of the spool appear in the outcome.
func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, fs.ErrClosed
	}
	if len(p) == 0 {
		return 0, nil
	}
	r.raw.Write(p)
	return len(p), nil
}

// written returns the number of bytes so far.
func (r *recorder) written() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size
}

// add adds output without secrets.
func (r *recorder) add(p []byte) {
	r.keep(p)
	r.cleaned = r.cleaner.append(r.cleaned[:0], p)
	r.text.Write(r.cleaned)
	if r.onOutput != nil {
		r.onOutput(p)
	}
}

// show passes cleaned text to the cutter.
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

// open moves the output from memory to the spool.
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

// store also writes an output that is in memory to the spool, so that the model can read the part
// that was left out.
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

// lose records that bytes are missing in the file, which makes it useless.
func (r *recorder) lose(err error) {
	if err == nil {
		return
	}
	r.lost = err
	if r.file != nil {
		_ = r.file.Close() // The first error is the cause.
		r.file = nil
	}
}

// finish ends the output with trailer, on a separate line. It returns the whole output and the
// text for the model; readable reports whether the model can read outputs in the spool.
func (r *recorder) finish(
	trailer string, readable bool,
) (out event.Output, text string, truncated bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.raw.Close()
	r.cleaned = r.cleaner.flush(r.cleaned[:0])
	r.text.Write(r.cleaned)
	r.text.Close()
	trailer = (&cleaner{}).all(trailer)
	if trailer != "" {
		if r.size > 0 && r.last != '\n' {
			r.keep([]byte{'\n'})
			r.show([]byte{'\n'})
		}
		r.keep([]byte(trailer))
	}
	// The trailer is not cut, unless it is long or the whole output.
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

// nameable matches the IDs that are unambiguous after output:// in a sentence.
var nameable = lazyregexp.New(`^[A-Za-z0-9_.:-]{1,128}$`)

// where explains to the model how to read the omitted output. readable reports whether the model
// can read the output by its ID.
func (r *recorder) where(readable bool) string {
	switch {
	case r.lost != nil:
		return "The full output was not kept; run a narrower call to see more."
	case readable:
		return "The full output is " + OutputScheme + r.id +
			": read parts of it with read_file, or search it with grep."
	default:
		return "Run a narrower call to see more."
	}
}
