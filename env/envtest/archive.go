package envtest

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// tarEntry is one entry of an archive.
type tarEntry struct {
	tar.Header
	data string
}

func tarFile(name, data string) tarEntry { return tarFileMode(name, data, 0o644) }

func tarFileMode(name, data string, mode fs.FileMode) tarEntry {
	return tarEntry{tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: int64(mode),
		Size: int64(len(data)),
	}, data}
}

func tarDir(name string, mode fs.FileMode) tarEntry {
	return tarEntry{tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: int64(mode)}, ""}
}

func tarSymlink(name, target string) tarEntry {
	return tarEntry{
		tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777},
		"",
	}
}

func tarHardLink(name, target string) tarEntry {
	return tarEntry{tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target, Mode: 0o644}, ""}
}

func tarDevice(name string) tarEntry {
	return tarEntry{tar.Header{
		Typeflag: tar.TypeChar, Name: name, Mode: 0o666, Devmajor: 1,
		Devminor: 5,
	}, ""}
}

// pack returns a tar archive. The entries are ours, so a mistake in them is one in the suite.
func pack(entries ...tarEntry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&e.Header); err != nil {
			panic(fmt.Sprintf("envtest: archive entry %q: %v", e.Name, err))
		}
		if _, err := io.WriteString(w, e.data); err != nil {
			panic(fmt.Sprintf("envtest: archive entry %q: %v", e.Name, err))
		}
	}
	if err := w.Close(); err != nil {
		panic(fmt.Sprintf("envtest: archive: %v", err))
	}
	return b.Bytes()
}

func archive(entries ...tarEntry) io.Reader { return bytes.NewReader(pack(entries...)) }

func emptyArchive() io.Reader { return archive() }

// unpack returns the entries of a tar stream, one line each with the compared fields, and the error
// that ended it, if any.
func unpack(r io.Reader) ([]string, error) {
	var lines []string
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		data, err := io.ReadAll(t)
		if err != nil {
			return lines, err
		}
		lines = append(lines, tarEntry{*h, string(data)}.line())
	}
}

// line describes an entry: name, type, mode, target and content.
func (e tarEntry) line() string {
	name := strings.TrimSuffix(strings.TrimPrefix(e.Name, "./"), "/")
	data := e.data
	if len(data) > 40 {
		data = hash(data)
	}
	switch e.Typeflag {
	case tar.TypeDir:
		return fmt.Sprintf("%q directory %04o", name, e.Mode&0o7777)
	case tar.TypeSymlink:
		return fmt.Sprintf("%q symlink to %q", name, e.Linkname) // The mode of a symlink means nothing.
	case tar.TypeReg:
		return fmt.Sprintf("%q file %04o %q", name, e.Mode&0o7777, data)
	default:
		return fmt.Sprintf("%q of type %c", name, e.Typeflag)
	}
}
