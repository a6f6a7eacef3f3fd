// Package v4a reads patches in the v4a format and applies their chunks to the content of files. It
// knows no files and no environment: callers read and write.
//
// # The format
//
// A patch stands between the lines "*** Begin Patch" and "*** End Patch" and holds operations: "***
// Add File: NAME" with lines that begin with +, "*** Delete File: NAME", and "*** Update File:
// NAME" with an optional "*** Move to: NAME" and chunks. A chunk begins with "@@", which the first
// one may lack; text after it names a line above the change. Lines of a chunk begin with a space
// (kept), - (removed) or + (added). "*** End of File" after a chunk says that it ends where the
// file ends.
//
// # Matching
//
// The old lines of a chunk are looked for from where the chunk before it ended, at four levels:
// exactly, without trailing space, without space at both ends, and with typographic punctuation
// folded to ASCII. At the exact level the first match counts. At the others there must be only one,
// because a guess would change the wrong place. Lines that a chunk keeps stay in the file byte by
// byte as they are there, whatever level matched. New lines are indented as the file is where the
// old ones are not; if their indentation does not follow from that of the old ones, the chunk does
// not fit.
package v4a
