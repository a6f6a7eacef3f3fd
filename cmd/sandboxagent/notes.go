package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
)

// notesFile, in the state directory, holds the notes that the user has got from noteOnce.
const notesFile = "notes.json"

// noteOnce writes a note about subject for the user, unless it was the last one about it. An empty
// text ends the subject: a protection that is lost again gets another note. Without a state
// directory that can be written it writes each note.
func (p *program) noteOnce(subject, text string) {
	if p.quiet { // the user has not got it
		return
	}
	state, err := stateDir()
	file := filepath.Join(state, notesFile)
	var seen map[string]string
	if info, serr := os.Stat(file); err == nil && state != "" && serr == nil && ownedHere(info) {
		if data, err := os.ReadFile(file); err == nil {
			_ = json.Unmarshal(data, &seen) // the notes of a damaged file are written again
		}
	}
	if seen[subject] == text {
		return
	}
	if text != "" {
		p.notify(text)
	}
	if seen == nil {
		seen = make(map[string]string)
	}
	seen[subject] = text
	if data, merr := json.MarshalIndent(seen, "", "  "); err == nil && state != "" && merr == nil &&
		os.MkdirAll(state, 0o700) == nil {
		_ = replaceFile(file, 0o600, func(w io.Writer) error {
			_, err := w.Write(append(data, '\n'))
			return err
		})
	}
}
