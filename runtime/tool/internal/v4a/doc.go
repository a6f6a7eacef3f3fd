// Package v4a parses patches in the v4a format and applies their chunks to the content of files.
// Callers read and write the files.
//
// # The format
//
// A patch starts with the line "*** Begin Patch", ends with "*** End Patch" and holds operations:
// "*** Add File: NAME" with lines that start with +, "*** Delete File: NAME", and "*** Update File:
// NAME" with an optional "*** Move to: NAME" and chunks. A chunk starts with "@@", which the first
// one may lack; text after it names a line above the change. Lines of a chunk start with a space
// (kept), - (removed) or + (added). "*** End of File" after a chunk means that it ends at the end
// of the file.
//
// # Matching
//
// The search for the old lines of a chunk starts at the end of the previous chunk, at four levels:
// exactly, without trailing space, without space at both ends, and with typographic punctuation
// folded to ASCII. At the exact level the first match counts. At the others only a single match
// counts, because a guess could change the wrong lines. Lines that a chunk keeps stay in the file
// byte by byte at every level. Where the old lines have another indentation than the file,
// new lines get the indentation of the file; if it does not follow from that of the old ones, the
// chunk does not fit.
package v4a
