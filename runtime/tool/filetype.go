package tool

import (
	"bytes"
	"strings"
)

// signature is the prefix of files of a type.
type signature struct{ prefix, name string }

// imageType returns the MIME type of an image that providers accept, or "".
func imageType(start []byte) string {
	for _, s := range []signature{
		{"\x89PNG\r\n\x1a\n", "image/png"},
		{"\xff\xd8\xff", "image/jpeg"},
		{"GIF87a", "image/gif"},
		{"GIF89a", "image/gif"},
	} {
		if bytes.HasPrefix(start, []byte(s.prefix)) {
			return s.name
		}
	}
	if len(start) >= 12 && string(start[:4]) == "RIFF" && string(start[8:12]) == "WEBP" {
		return "image/webp"
	}
	return ""
}

// fileType names the type of a binary file, for a message.
func fileType(start []byte) string {
	for _, s := range []signature{
		{"\x7fELF", "an ELF program or library"},
		{"MZ", "a Windows program or library"},
		{"\xcf\xfa\xed\xfe", "a Mach-O program or library"},
		{"%PDF-", "a PDF document"},
		{"PK\x03\x04", "a zip archive or a document in zip format"},
		{"\x1f\x8b", "gzip data"},
		{"BZh", "bzip2 data"},
		{"\xfd7zXZ\x00", "xz data"},
		{"\x28\xb5\x2f\xfd", "zstd data"},
		{"SQLite format 3\x00", "an SQLite database"},
		{"\x00asm", "WebAssembly"},
		{"\xff\xfe", "possibly text in UTF-16"},
		{"\xfe\xff", "possibly text in UTF-16"},
	} {
		if strings.HasPrefix(string(start), s.prefix) {
			return s.name
		}
	}
	return "type unknown"
}
