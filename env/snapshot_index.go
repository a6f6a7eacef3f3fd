package env

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"path"
	"strings"
)

// maxIndex is the size of the largest git index that is read, in bytes, and of the names in it, which may be written
// shortened.
const maxIndex = 256 << 20

// trackedFiles returns the names, relative to dir, of the files and links that git tracks below dir, and the name of dir
// in its repository, with a slash at its end unless it is empty. There are no names where there is no repository, and
// where its index cannot be read or understood: then only ignore files count.
func trackedFiles(ctx context.Context, e FileReader, dir string) (names []string, prefix string, err error) {
	top := (&walker{e: e, root: dir}).absolute()
	below := ""
	for strings.Contains(top, "/") {
		index, err := readIndex(ctx, e, top)
		if endsSearch(ctx, err) {
			return nil, "", err
		}
		if err == nil {
			return indexNames(index, below), below, nil
		}
		if _, err := e.Stat(ctx, join(top, gitDir)); err == nil || endsSearch(ctx, err) {
			return nil, below, err
		}
		if top == "/" {
			break
		}
		top, below = path.Dir(top), path.Base(top)+"/"+below
	}
	return nil, "", nil
}

// readIndex reads the index of the repository whose topmost folder is top. In a linked worktree .git is a file that
// tells where the rest is.
func readIndex(ctx context.Context, e FileReader, top string) ([]byte, error) {
	git := join(top, gitDir)
	pointer, err := ReadFile(ctx, e, git, maxIgnoreFile)
	switch {
	case err == nil:
		to, ok := strings.CutPrefix(strings.TrimRight(string(pointer), "\r\n"), "gitdir: ")
		if !ok {
			return nil, errors.New("not a git file")
		}
		git = to
		if !strings.HasPrefix(to, "/") && !hasDrive(to) {
			git = path.Join(top, to)
		}
	case !errors.Is(err, ErrIsDir):
		return nil, err
	}
	return ReadFile(ctx, e, join(git, "index"), maxIndex)
}

// indexNames returns the names of the files and links in an index that are below a folder, relative to it.
func indexNames(index []byte, below string) []string {
	// The index does not tell how long its hashes are: as in SHA-1 or in SHA-256.
	all, ok := parseIndex(index, 20)
	if !ok {
		all, ok = parseIndex(index, 32)
	}
	if !ok {
		return nil
	}
	names := all[:0]
	for _, name := range all {
		if name, ok := strings.CutPrefix(name, below); ok {
			names = append(names, name)
		}
	}
	return names
}

// parseIndex returns the names of the files and links in a git index of version 2, 3 or 4 with hashes of hashLen bytes.
func parseIndex(index []byte, hashLen int) (names []string, ok bool) {
	const header, stat = 12, 40
	if len(index) < header || string(index[:4]) != "DIRC" {
		return nil, false
	}
	version := binary.BigEndian.Uint32(index[4:])
	count := binary.BigEndian.Uint32(index[8:])
	if version < 2 || version > 4 {
		return nil, false
	}
	rest, name, total := index[header:], "", 0
	for range count {
		fixed := stat + hashLen + 2
		if len(rest) < fixed+2 {
			return nil, false
		}
		mode := gitMode(binary.BigEndian.Uint32(rest[24:]))
		if flags := binary.BigEndian.Uint16(rest[fixed-2:]); version >= 3 && flags&0x4000 != 0 {
			fixed += 2
		}
		at := fixed
		if version == 4 {
			cut, n := prefixLength(rest[at:])
			if n == 0 || cut > uint64(len(name)) {
				return nil, false
			}
			name, at = name[:uint64(len(name))-cut], at+n
		} else {
			name = ""
		}
		end := bytes.IndexByte(rest[at:], 0)
		if end < 0 {
			return nil, false
		}
		name += string(rest[at : at+end])
		at += end + 1
		if total += len(name); total > maxIndex {
			return nil, false
		}
		if version < 4 {
			at = (at + 7) / 8 * 8 // Entries are filled up with NUL bytes.
		}
		if at > len(rest) {
			return nil, false
		}
		rest = rest[at:]
		switch mode {
		case modeFile, modeExecutable, modeLink:
			names = append(names, name)
		case modeSubmodule, modeSparseFolder:
		default:
			return nil, false
		}
	}
	return names, true
}

// Modes in an index that stand for folders.
const (
	modeSubmodule    gitMode = 0o160000
	modeSparseFolder gitMode = 0o040000
)

// prefixLength decodes how much of the name before is not shared, and in how many bytes that is written; 0 if it is
// malformed. Each byte but the last has its high bit set, and counts one more than its bits.
func prefixLength(b []byte) (cut uint64, n int) {
	for i, c := range b {
		if i > 8 {
			break
		}
		cut = cut<<7 | uint64(c&0x7f)
		if c&0x80 == 0 {
			return cut, i + 1
		}
		cut++
	}
	return 0, 0
}
