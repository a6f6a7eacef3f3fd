package gitrepo

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
)

// MaxIndexSize bounds the size of an index file, and the sum of the names in it, which version 4
// compresses, in bytes.
const MaxIndexSize = 256 << 20

var errIndex = errors.New("not a git index")

// Index lists the tracked files of a repository.
type Index struct {
	// Files are the names of regular files and symlinks, Submodules those of submodules.
	Files, Submodules []string
	// Executables are those of Files that are executable.
	Executables []string
	// Shared is the hexadecimal ID of the index that this one is a difference to, in the file
	// sharedindex.ID; empty for a complete index.
	Shared string
	// hashSize is the length of the hashes in the index, in bytes.
	hashSize int
	// extensions is the offset of the extensions.
	extensions int
}

// Kinds of entries.
const (
	modeFile       = 0o100644
	modeExecutable = 0o100755
	modeSymlink    = 0o120000
	modeSubmodule  = 0o160000
	modeDir        = 0o040000 // of a sparse index
)

// ParseIndex reads an index of version 2, 3 or 4. Its names are not validated.
func ParseIndex(index []byte) (*Index, error) {
	// The format does not record whether hashes are SHA-1 or SHA-256.
	for _, size := range []int{sha1.Size, sha256.Size} {
		if x, ok := parseIndex(index, size); ok {
			return x, nil
		}
	}
	return nil, errIndex
}

func parseIndex(index []byte, hashSize int) (x *Index, ok bool) {
	const header, stat = 12, 40
	if len(index) < header || string(index[:4]) != "DIRC" {
		return nil, false
	}
	version := binary.BigEndian.Uint32(index[4:])
	count := binary.BigEndian.Uint32(index[8:])
	if version < 2 || version > 4 {
		return nil, false
	}
	x = &Index{hashSize: hashSize}
	rest, name, total := index[header:], "", 0
	for range count {
		fixed := stat + hashSize + 2
		if len(rest) < fixed+2 {
			return nil, false
		}
		mode := binary.BigEndian.Uint32(rest[24:])
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
		if total += len(name); total > MaxIndexSize {
			return nil, false
		}
		if version < 4 {
			at = (at + 7) / 8 * 8 // Entries are padded with NUL bytes.
		}
		if at > len(rest) {
			return nil, false
		}
		rest = rest[at:]
		switch mode {
		case modeFile, modeExecutable, modeSymlink:
			x.Files = append(x.Files, name)
			if mode == modeExecutable {
				x.Executables = append(x.Executables, name)
			}
		case modeSubmodule:
			x.Submodules = append(x.Submodules, name)
		case modeDir:
		default:
			return nil, false
		}
	}
	x.extensions = len(index) - len(rest)
	return x, x.findShared(rest)
}

// findShared sets x.Shared, and reports whether the extensions are well formed.
func (x *Index) findShared(rest []byte) bool {
	err := x.eachExtension(rest, func(kind string, whole []byte) {
		if kind == "link" && len(whole) >= 8+x.hashSize {
			if number := whole[8 : 8+x.hashSize]; !bytes.Equal(number, make([]byte, x.hashSize)) {
				x.Shared = hex.EncodeToString(number)
			}
		}
	})
	return err == nil
}

// eachExtension calls fn with each extension between the entries and the checksum: a kind of four
// letters, a length and the content.
func (x *Index) eachExtension(rest []byte, fn func(kind string, whole []byte)) error {
	if len(rest) < x.hashSize {
		return errIndex
	}
	rest = rest[:len(rest)-x.hashSize]
	for len(rest) > 0 {
		if len(rest) < 8 {
			return errIndex
		}
		size := 8 + uint64(binary.BigEndian.Uint32(rest[4:]))
		if size > uint64(len(rest)) {
			return errIndex
		}
		fn(string(rest[:4]), rest[:size])
		rest = rest[size:]
	}
	return nil
}

// Portable returns an index with the same entries, without the extensions that describe the machine
// it was made on, such as paths of caches, or that depend on offsets. Git rebuilds those.
func (x *Index) Portable(index []byte) ([]byte, error) {
	out := bytes.Clone(index[:x.extensions])
	err := x.eachExtension(index[x.extensions:], func(kind string, whole []byte) {
		switch kind {
		case "TREE", "REUC", "link", "sdir":
			out = append(out, whole...)
		}
	})
	if err != nil {
		return nil, err
	}
	sum := sha1.New() // The format demands it; nothing relies on it for security.
	if x.hashSize == sha256.Size {
		sum = sha256.New()
	}
	sum.Write(out)
	return sum.Sum(out), nil
}

// prefixLength decodes how many bytes of the previous name to cut, and the length n of the
// encoding; n is 0 if it is malformed. Each byte but the last has its high bit set, and counts one
// more than its bits.
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
