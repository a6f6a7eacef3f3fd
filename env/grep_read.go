package env

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"sync"
)

const (
	// readTogether is the size of the largest file that Grep reads together with others.
	readTogether = 128 << 10
	// firstTogether is how many files it reads at first, growTogether how many times more in each request than in the one
	// before, until there are maxTogether, or bytesTogether in all.
	firstTogether, growTogether, maxTogether, bytesTogether = 32, 4, 256, 4 << 20
	// sizeUnknown is what a file counts whose size is not known, and sizeLeast what any counts.
	sizeUnknown, sizeLeast = 64 << 10, 1 << 10
)

// readAhead is the size of the largest file that is read before it is its turn, where files are not those of this machine.
const readAhead = 512 << 10

// hold opens a file. Environments whose files are elsewhere may have only so many of them open at once. So a batch that waits for
// those before it holds none open: it reads what is small at once, and opens what is larger when it is its turn.
func (w *grepWorker) hold(f grepFile) (io.ReadCloser, error) {
	if _, ok := w.e.(regularOpener); ok {
		file, _, err := w.open(f)
		return file, err
	}
	if f.size <= readAhead {
		file, err := w.e.Open(w.ctx, f.name)
		if err != nil || w.isTurn() {
			return file, err
		}
		if small := readSmall(file); small != nil {
			return small, nil
		}
	}
	select {
	case <-w.turn:
		return w.e.Open(w.ctx, f.name)
	case <-w.ctx.Done():
		return nil, w.ctx.Err()
	}
}

func (w *grepWorker) isTurn() bool {
	select {
	case <-w.turn:
		return true
	default:
		return false
	}
}

// readSmall reads a file into memory and closes it. It returns nil if the file is too large for that.
func readSmall(file fs.File) io.ReadCloser {
	if known, ok := file.(knownFile); ok {
		return known
	}
	defer func() { _ = file.Close() }() // It was only read.
	if info, err := file.Stat(); err == nil && info.Size() > readAhead {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(file, readAhead+1))
	if len(data) > readAhead {
		return nil
	}
	return &readBefore{bytes.NewReader(data), err}
}

// readBefore is what was read of a file until err.
type readBefore struct {
	data *bytes.Reader
	err  error
}

func (r *readBefore) Read(p []byte) (int, error) {
	n, err := r.data.Read(p)
	if errors.Is(err, io.EOF) {
		err = cmp.Or(r.err, io.EOF)
	}
	return n, err
}

func (r *readBefore) Close() error { return nil }

// opened is a file that openAll has read, or could not read, or has left to Open.
type opened struct {
	name string
	data []byte
	err  error
}

// open opens the file. It may be called once.
func (o opened) open(ctx context.Context, e FileReader) (fs.File, error) {
	switch {
	case o.err != nil:
		return nil, o.err
	case o.data != nil:
		return newKnownFile(o.name, o.data), nil
	}
	return e.Open(ctx, o.name)
}

// openAll reads files together where e can do that, and returns one opened for each of names, in the same order. Files of
// more than 128 KiB are left to Open. What keeps all from being read, such as the end of ctx, is the error of each.
func openAll(ctx context.Context, e FileReader, names []string) []opened {
	files := make([]opened, len(names))
	for i, name := range names {
		files[i].name = name
	}
	m, ok := e.(MultiReader)
	if !ok || len(names) == 0 {
		return files
	}
	contents, err := m.ReadFiles(ctx, names, readTogether)
	ends := endsSearch(ctx, err)
	for i := range files {
		switch {
		case ends:
			files[i].err = pathError("open", names[i], err)
		case err != nil || errors.Is(contents[i].Err, ErrTooLarge):
		default:
			files[i].data, files[i].err = contents[i].Data, contents[i].Err
		}
	}
	return files
}

// readsTogether returns a FileReader of e for a search of a folder: its Walk finds the files that are wanted and nothing else,
// does not go into folders below which there are none, and reads the files together before it reports them, for Open. It is
// e itself where files cannot be read together.
func readsTogether(e FileReader, wanted, wantedBelow func(name string) bool) FileReader {
	if _, ok := e.(MultiReader); !ok {
		return e
	}
	return &togetherReader{FileReader: e, wanted: wanted, wantedBelow: wantedBelow, files: make(map[string]opened)}
}

type togetherReader struct {
	FileReader
	wanted, wantedBelow func(name string) bool

	mu    sync.Mutex
	files map[string]opened // and not taken by Open yet
}

// Open implements FileReader.
func (r *togetherReader) Open(ctx context.Context, name string) (fs.File, error) {
	r.mu.Lock()
	o, ok := r.files[name]
	delete(r.files, name)
	r.mu.Unlock()
	if ok {
		return o.open(ctx, r.FileReader)
	}
	return r.FileReader.Open(ctx, name)
}

// Walk implements Walker.
func (r *togetherReader) Walk(ctx context.Context, root string, opts WalkOptions, fn func(Entry) error) error {
	// What lists several folders at once gives the sizes without further ado.
	_, sized := r.FileReader.(TreeReader)
	opts.Details = opts.Details || sized
	b := readBatch{most: firstTogether, left: bytesTogether}
	report := func() error {
		r.read(ctx, root, b)
		entries := b.entries
		b = readBatch{most: min(b.most*growTogether, maxTogether), left: bytesTogether}
		for _, entry := range entries {
			if err := fn(entry); err != nil {
				return err
			}
		}
		return nil
	}
	visit := func(entry Entry) error {
		switch {
		case entry.Err != nil:
			b.entries = append(b.entries, entry)
		case entry.Mode.IsDir() && !r.wantedBelow(entry.Name):
			return fs.SkipDir
		case entry.Mode.IsRegular() && r.wanted(entry.Name):
			b.add(entry, sized)
		}
		if len(b.entries) < b.most && b.left > 0 {
			return nil
		}
		return report()
	}
	var err error
	if sized {
		err = walk(ctx, r.FileReader, root, opts, r.wantedBelow, func(entry Entry, _ fs.DirEntry) error { return visit(entry) })
	} else {
		err = Walk(ctx, r.FileReader, root, opts, visit)
	}
	if err != nil {
		return err
	}
	if err := report(); !errors.Is(err, fs.SkipAll) {
		return err
	}
	return nil
}

// read reads the files of a batch that are not too large.
func (r *togetherReader) read(ctx context.Context, root string, b readBatch) {
	names := make([]string, len(b.small))
	for i, name := range b.small {
		names[i] = join(root, name)
	}
	files := openAll(ctx, r.FileReader, names)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range files {
		r.files[o.name] = o
	}
}

// readBatch is what is reported together.
type readBatch struct {
	entries []Entry
	small   []string // those of them to read
	most    int
	left    int64 // how many bytes more to read
}

// add adds a file.
func (b *readBatch) add(entry Entry, sized bool) {
	b.entries = append(b.entries, entry)
	size := max(entry.Size, sizeLeast)
	if !sized {
		size = sizeUnknown
	}
	if size <= readTogether {
		b.small = append(b.small, entry.Name)
		b.left -= size
	}
}
