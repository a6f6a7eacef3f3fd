package portable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

const (
	// inlineData is how much is written as part of a script.
	inlineData = 32 << 10
	// partSize is how much of a larger file is sent at once.
	partSize = 1 << 20
	// maxAnswer bounds what a write answers.
	maxAnswer = 16 << 10
)

// WriteFile implements env.Environment. The content is read before anything changes in the place if it is short, and goes
// to a file of its own beside the one to replace if it is not.
func (e *Environment) WriteFile(ctx context.Context, name string, r io.Reader, opts env.WriteOptions) (env.Written, error) {
	full, err := e.resolve(name)
	if err == nil && opts.IfSHA256 != "" {
		if err = e.facts.needs("sha256sum"); err == nil && strings.Trim(opts.IfSHA256, "0123456789abcdefABCDEF") != "" {
			err = fs.ErrInvalid
		}
	}
	if err == nil {
		err = e.begin(ctx)
	}
	if err != nil {
		return env.Written{}, pathError("write", name, err)
	}
	defer e.work.Done()
	w := &writing{e: e, full: full, opts: opts, temp: ".sandboxagent-" + newMark() + ".tmp"}
	written, err := w.run(ctx, r)
	return written, pathError("write", name, err)
}

// writing is one call of WriteFile.
type writing struct {
	e      *Environment
	full   string
	temp   string // the name of the file that is written first
	opts   env.WriteOptions
	buffer bytes.Buffer
	size   int64
}

func (w *writing) run(ctx context.Context, r io.Reader) (env.Written, error) {
	inner, cancel := w.e.while(ctx)
	defer cancel()
	r = interruptible(inner, r)
	end, err := w.fill(ctx, r, inlineData)
	if err != nil {
		return env.Written{}, err
	}
	if end {
		w.size = int64(w.buffer.Len())
		body := "sa_data() { printf " + format(w.buffer.Bytes()) + "\n}\nsa_put " + w.words(w.full, w.temp, w.mode(), w.exclusive(), w.sum())
		return w.commit(ctx, body)
	}
	existing := "0"
	if w.opts.IfSHA256 != "" {
		existing = "1"
	}
	staged, err := w.ask(ctx, operation{body: "sa_stage " + w.words(w.full, w.temp, w.exclusive(), existing)})
	if err != nil {
		return env.Written{}, err
	}
	written, err := w.content(ctx, inner, r, staged)
	if err != nil {
		w.clean(staged)
	}
	return written, err
}

// content sends the content and puts the file in its place.
func (w *writing) content(ctx, inner context.Context, r io.Reader, staged string) (env.Written, error) {
	end, err := w.fill(ctx, r, partSize)
	if err != nil {
		return env.Written{}, err
	}
	way := errors.ErrUnsupported
	if !end && w.e.isDirect(ctx) {
		if end, err = w.fill(ctx, r, largeFile); err == nil && !end {
			way = w.upload(inner, r, staged)
		}
	}
	if err != nil {
		return env.Written{}, err
	}
	if err = way; errors.Is(err, errors.ErrUnsupported) {
		err = w.parts(ctx, r, staged, end)
	}
	if err != nil {
		return env.Written{}, err
	}
	mode := strconv.FormatUint(uint64(0o666&^w.e.facts.umask), 8)
	return w.commit(ctx, "sa_finish "+w.words(staged, w.full, w.temp, w.mode(), w.exclusive(), w.sum(), mode, strconv.FormatInt(w.size, 10)))
}

// parts sends the content part by part, beginning with the first one, which was read.
func (w *writing) parts(ctx context.Context, r io.Reader, staged string, end bool) error {
	for {
		n := w.buffer.Len()
		if n == 0 {
			return nil
		}
		o := operation{body: "sa_part " + quote(staged) + " " + strconv.Itoa(n), input: bytes.NewReader(w.buffer.Bytes())}
		if _, err := w.ask(ctx, o); err != nil {
			return err
		}
		w.size += int64(n)
		w.buffer.Reset()
		if end {
			return nil
		}
		var err error
		if end, err = w.fill(ctx, r, partSize); err != nil {
			return err
		}
	}
}

// fill reads until the buffer holds size bytes or r ends.
func (w *writing) fill(ctx context.Context, r io.Reader, size int) (end bool, err error) {
	_, err = io.CopyN(&w.buffer, r, int64(size-w.buffer.Len()))
	switch {
	case w.e.isClosed():
		return false, fs.ErrClosed
	case ctx.Err() != nil:
		return false, ended(ctx)
	case err == io.EOF: //nolint:errorlint // A failure that wraps io.EOF is no end.
		return true, nil
	}
	return false, err
}

// commit runs the operation that changes the file.
func (w *writing) commit(ctx context.Context, body string) (env.Written, error) {
	if w.opts.IfSHA256 != "" {
		w.e.conditional.Lock()
		defer w.e.conditional.Unlock()
	} else {
		w.e.conditional.RLock()
		defer w.e.conditional.RUnlock()
	}
	answer, err := w.ask(ctx, operation{body: body})
	if err != nil {
		return env.Written{}, err
	}
	var created, inPlace int
	if n, err := fmt.Sscanf(answer, "%d %d", &created, &inPlace); n != 2 || err != nil {
		return env.Written{}, fmt.Errorf("%w: a write answers %.40q", env.ErrProtocol, answer)
	}
	return env.Written{Size: w.size, Created: created == 1, InPlace: inPlace == 1}, nil
}

// ask runs one operation and returns its answer.
func (w *writing) ask(ctx context.Context, o operation) (string, error) {
	out := collect{max: maxAnswer}
	o.out = out.add
	code, text, err := w.e.ask(ctx, o)
	if err == nil && code != codeOK {
		err = errCode(code, text)
	}
	return string(out.data), err
}

// clean removes what was written first.
func (w *writing) clean(staged string) {
	// The caller's context may be the reason; Close removes nothing that lies beside other files.
	_ = w.e.warden.inTime(operation{body: "rm -f -- " + quote(staged) + "\n:"})
}

func (w *writing) words(args ...string) string {
	quoted := make([]string, len(args))
	for i, arg := range args {
		quoted[i] = quote(arg)
	}
	return strings.Join(quoted, " ")
}

func (w *writing) mode() string {
	if w.opts.Mode == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(w.opts.Mode.Perm()), 8)
}

func (w *writing) exclusive() string {
	if w.opts.MustNotExist {
		return "1"
	}
	return "0"
}

func (w *writing) sum() string { return strings.ToLower(w.opts.IfSHA256) }
