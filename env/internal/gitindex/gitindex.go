// Package gitindex reads the index of a git repository, the list of what git tracks, and makes one
// that says the same without what belongs to a single machine.
package gitindex

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
)

// MaxSize is the size of the largest index that is worth reading, in bytes, and of the names in it,
// which may be written shortened.
const MaxSize = 256 << 20

// ErrFormat means that an index cannot be understood.
var ErrFormat = errors.New("not a git index")

// Index is what an index holds.
type Index struct {
	// Files are the names of files and links, Submodules those of other repositories.
	Files, Submodules []string
	// Executables are those of Files that are executable.
	Executables []string
	// Shared is the hexadecimal number of the index that this one is the difference to; empty if it
	// stands alone. The file that holds it is called sharedindex and, after a dot, this number.
	Shared string
	// HashSize is the length of the hashes in the index, in bytes.
	HashSize int
	// extensions is where they begin.
	extensions int
}

// Kinds of entries.
const (
	modeFile       = 0o100644
	modeExecutable = 0o100755
	modeLink       = 0o120000
	modeSubmodule  = 0o160000
	modeFolder     = 0o040000 // of a sparse index
)

// Parse reads an index of version 2, 3 or 4. Names are as they stand there: whoever wrote the index
// may have chosen any.
func Parse(index []byte) (*Index, error) {
	// The index does not tell how long its hashes are: as in SHA-1 or in SHA-256.
	for _, size := range []int{sha1.Size, sha256.Size} {
		if x, ok := parse(index, size); ok {
			return x, nil
		}
	}
	return nil, ErrFormat
}

func parse(index []byte, hashSize int) (x *Index, ok bool) {
	const header, stat = 12, 40
	if len(index) < header || string(index[:4]) != "DIRC" {
		return nil, false
	}
	version := binary.BigEndian.Uint32(index[4:])
	count := binary.BigEndian.Uint32(index[8:])
	if version < 2 || version > 4 {
		return nil, false
	}
	x = &Index{HashSize: hashSize}
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
		if total += len(name); total > MaxSize {
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
			x.Files = append(x.Files, name)
			if mode == modeExecutable {
				x.Executables = append(x.Executables, name)
			}
		case modeSubmodule:
			x.Submodules = append(x.Submodules, name)
		case modeFolder:
		default:
			return nil, false
		}
	}
	x.extensions = len(index) - len(rest)
	return x, x.findShared(rest)
}

// findShared finds the extension that names the shared index, and reports whether the extensions
// are well formed.
func (x *Index) findShared(rest []byte) bool {
	err := x.eachExtension(rest, func(kind string, whole []byte) {
		if kind == "link" && len(whole) >= 8+x.HashSize {
			if number := whole[8 : 8+x.HashSize]; !bytes.Equal(number, make([]byte, x.HashSize)) {
				x.Shared = hex.EncodeToString(number)
			}
		}
	})
	return err == nil
}

// eachExtension calls fn with each extension between the entries and the checksum: four letters, a
// length, content.
func (x *Index) eachExtension(rest []byte, fn func(kind string, whole []byte)) error {
	if len(rest) < x.HashSize {
		return ErrFormat
	}
	rest = rest[:len(rest)-x.HashSize]
	for len(rest) > 0 {
		if len(rest) < 8 {
			return ErrFormat
		}
		size := 8 + uint64(binary.BigEndian.Uint32(rest[4:]))
		if size > uint64(len(rest)) {
			return ErrFormat
		}
		fn(string(rest[:4]), rest[:size])
		rest = rest[size:]
	}
	return nil
}

// Portable returns an index with the same entries, without the extensions that tell of the machine
// that it was made on, such as the places of caches, or that another order of the bytes makes
// wrong. Git makes those anew.
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
	sum := sha1.New() // Git wants it; nothing here relies on it for security.
	if x.HashSize == sha256.Size {
		sum = sha256.New()
	}
	sum.Write(out)
	return sum.Sum(out), nil
}

// prefixLength decodes how much of the name before is not shared, and in how many bytes that is
// written; 0 if it is malformed. Each byte but the last has its high bit set, and counts one more
// than its bits.
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
