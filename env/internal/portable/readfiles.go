package portable

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

// smallFile is how large a file may be to come along with others, and smallFiles how many come at once.
const smallFile, smallFiles = 128 << 10, 256

// ReadFiles implements env.MultiReader. Small files come many in a round trip, and the others one by one.
func (e *Environment) ReadFiles(ctx context.Context, names []string, limit int64) ([]env.FileContent, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("read files: %w", ended(ctx))
	}
	if limit <= 0 {
		limit = env.DefaultReadLimit
	}
	left := int64(env.MaxReadFiles)
	contents := make([]env.FileContent, 0, len(names))
	for len(contents) < len(names) {
		rest := names[len(contents):]
		batch, err := e.readSmall(ctx, rest[:min(len(rest), smallFiles)], limit)
		if err != nil {
			return nil, fmt.Errorf("read files: %w", err)
		}
		for _, c := range batch {
			share := min(limit, left)
			if c.Data == nil && c.Err == nil || int64(len(c.Data)) > share {
				c.Data, c.Err = env.ReadFile(ctx, e, c.Name, max(share, 1))
			}
			if int64(len(c.Data)) > share || share < limit && errors.Is(c.Err, env.ErrTooLarge) {
				err := fmt.Errorf("%w: more than %d bytes with the files before it", env.ErrTooLarge, env.MaxReadFiles)
				c.Data, c.Err = nil, pathError("read", c.Name, err)
			}
			if c.Err != nil && (ctx.Err() != nil || errors.Is(c.Err, fs.ErrClosed) || errors.Is(c.Err, env.ErrGone)) {
				return nil, c.Err
			}
			left -= int64(len(c.Data))
			contents = append(contents, c)
		}
	}
	return contents, nil
}

// readSmall reads files in one round trip. What has neither data nor an error has to be read alone.
func (e *Environment) readSmall(ctx context.Context, names []string, limit int64) ([]env.FileContent, error) {
	if err := e.begin(ctx); err != nil {
		return nil, err
	}
	defer e.work.Done()
	most := int(min(limit, smallFile))
	mark := newMark()
	contents := make([]env.FileContent, len(names))
	// The printf of busybox may be interrupted before it prints.
	body := "sa_one() {\nsa_file \"$1\" && { head -c " + strconv.Itoa(most+1) + " \"$1\" || (exit 9); }\nsa_k=$?\n" +
		"for sa_j in 1 2 3 4 5 6 7 8; do printf '%s %s\\n' " + mark + " $sa_k && return; done\nreturn 9\n}"
	for i, name := range names {
		contents[i].Name = name
		full, err := e.resolve(name)
		if err != nil {
			contents[i].Err = pathError("open", name, err)
			continue
		}
		body += "\nsa_one " + quote(full)
	}
	out := collect{max: len(names) * (most + maxStatus)}
	code, text, err := e.ask(ctx, operation{body: body + "\n:", out: out.add})
	if err == nil && code != codeOK {
		err = errCode(code, text)
	}
	if err != nil {
		return nil, err
	}
	rest := out.data
	for i := range contents {
		if contents[i].Err != nil {
			continue
		}
		data, more, ok := bytes.Cut(rest, []byte(mark+" "))
		status, after, ended := strings.Cut(string(more[:min(len(more), maxRecord)]), "\n")
		code, err := strconv.Atoi(status)
		if !ok || !ended || err != nil {
			return nil, fmt.Errorf("%w: a file without its end", env.ErrProtocol)
		}
		rest = more[min(len(more), maxRecord)-len(after):]
		switch {
		case code == codeOK && len(data) <= most:
			contents[i].Data = append([]byte{}, data...)
		case code == codeOK && int64(most) == limit:
			contents[i].Err = pathError("read", contents[i].Name, fmt.Errorf("%w: more than %d bytes", env.ErrTooLarge, limit))
		case code != codeOK && code != codeOther:
			contents[i].Err = pathError("open", contents[i].Name, errCode(code, ""))
		}
	}
	return contents, nil
}
