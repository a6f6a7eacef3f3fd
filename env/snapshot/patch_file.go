package snapshot

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

// maxTextDiff is the size of the largest file whose lines are compared, in bytes.
const maxTextDiff = 8 << 20

// noObject is git's object ID for a missing file.
var noObject = strings.Repeat("0", 2*sha1.Size)

// file writes the patch from old to now, of which one may be missing, and adds to fc.
func (p *patchWriter) file(fc *FileChange, c change, old, now patchSide) error {
	from, to := c.from, c.to
	if from == "" {
		from = to
	}
	if to == "" {
		to = from
	}
	from, to = p.before.prefix+from, p.before.prefix+to
	fmt.Fprintf(p.w, "diff --git %s %s\n", quoteName("a/"+from), quoteName("b/"+to))
	switch {
	case old.mode == 0:
		fmt.Fprintf(p.w, "new file mode %06o\n", now.mode)
	case now.mode == 0:
		fmt.Fprintf(p.w, "deleted file mode %06o\n", old.mode)
	case old.mode != now.mode:
		fmt.Fprintf(p.w, "old mode %06o\nnew mode %06o\n", old.mode, now.mode)
	}
	if from != to {
		fmt.Fprintf(p.w, "similarity index %d%%\nrename from %s\nrename to %s\n", c.similarity,
			quoteName(from), quoteName(to))
	}
	if old.mode != 0 && now.mode != 0 && old.sha256 == now.sha256 {
		return nil
	}
	oldText, oldID, err := old.text()
	if err != nil {
		return err
	}
	newText, newID, err := now.text()
	if err != nil {
		return err
	}
	fmt.Fprintf(p.w, "index %s..%s", oldID, newID)
	if old.mode == now.mode {
		fmt.Fprintf(p.w, " %06o", now.mode)
	}
	fmt.Fprintln(p.w)
	if oldText == nil || newText == nil {
		fc.Binary = true
		return p.binary(old, now)
	}
	if len(oldText) == 0 && len(newText) == 0 {
		return nil
	}
	fmt.Fprintf(p.w, "--- %s\n+++ %s\n", lineName("a/"+from, old.mode), lineName("b/"+to, now.mode))
	ins, del := writeHunks(p.w, oldText, newText)
	fc.Insertions += ins
	fc.Deletions += del
	return nil
}

// text returns the content of a file, nil for a binary one, and its object ID in git.
func (s patchSide) text() (content []byte, id string, err error) {
	if s.mode == 0 {
		return []byte{}, noObject, nil
	}
	hash := sha1.New() // The format demands it; nothing relies on it for security.
	fmt.Fprintf(hash, "blob %d\x00", s.size)
	if s.size > maxTextDiff {
		if _, err := io.Copy(hash, s.open()); err != nil {
			return nil, "", err
		}
		return nil, hex.EncodeToString(hash.Sum(nil)), nil
	}
	content = make([]byte, s.size)
	if _, err := io.ReadFull(s.open(), content); err != nil {
		return nil, "", noEOF(err)
	}
	hash.Write(content)
	if bytes.IndexByte(content, 0) >= 0 {
		content = nil
	}
	return content, hex.EncodeToString(hash.Sum(nil)), nil
}

// lineName is the name of a file in the lines before the hunks. A tab ends a name with a space.
func lineName(name string, mode gitMode) string {
	if mode == 0 {
		return "/dev/null"
	}
	if strings.Contains(name, " ") {
		return quoteName(name) + "\t"
	}
	return quoteName(name)
}

// quoteName returns a name as git writes it by default: in quotes, with escapes, if it has control
// characters, quotes, backslashes or bytes outside ASCII.
func quoteName(name string) string {
	var b strings.Builder
	plain := true
	b.WriteByte('"')
	for i := range len(name) {
		c := name[i]
		if j := strings.IndexByte("\a\b\t\n\v\f\r\"\\", c); j >= 0 {
			b.WriteByte('\\')
			b.WriteByte(`abtnvfr"\`[j])
			plain = false
		} else if c < ' ' || c > '~' {
			fmt.Fprintf(&b, `\%03o`, c)
			plain = false
		} else {
			b.WriteByte(c)
		}
	}
	if plain {
		return name
	}
	b.WriteByte('"')
	return b.String()
}
