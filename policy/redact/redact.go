// Package redact replaces secrets in texts by markers such as "[redacted: GITHUB_TOKEN]", and puts
// them back into texts that were edited.
package redact

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/vars"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// Mode selects the secrets that a Redactor replaces.
type Mode string

// Modes.
const (
	Off Mode = "off"
	// Values are known values, such as those of variables.
	Values Mode = "values"
	// Patterns are those of Values, and what vars.FindSecrets finds.
	Patterns Mode = "patterns"
)

// MinValue is the least length of a known value, in bytes. Shorter ones would be found in ordinary
// text.
const MinValue = 8

// minLine is the least length of a line of a known value that is a secret of its own, in bytes.
const minLine = 2 * MinValue

// Redactor replaces secrets. Its methods may be called concurrently. A nil one replaces nothing.
type Redactor struct {
	values   []value
	patterns bool
	// key makes the digests in markers useless for guessing secrets.
	key [16]byte
}

// value is a known secret.
type value struct{ name, text string }

// New returns a Redactor; nil for Off. Values has known secrets by their names; those shorter than
// MinValue are ignored. A long line of one is a secret, too, since tools that number lines tear it
// out of its value.
func New(mode Mode, values map[string]string) *Redactor {
	if mode == Off {
		return nil
	}
	r := &Redactor{patterns: mode == Patterns}
	_, _ = rand.Read(r.key[:]) // it never fails
	for name, text := range values {
		if text = strings.TrimSpace(text); len(text) >= MinValue {
			for _, form := range formsOf(text) {
				r.values = append(r.values, value{name, form})
			}
			r.addLines(name, text)
		}
	}
	// A value that contains another one goes first.
	slices.SortFunc(r.values, func(a, b value) int {
		return cmp.Or(len(b.text)-len(a.text), strings.Compare(a.name, b.name))
	})
	return r
}

// addLines adds the long lines of a value of several lines, but for those of a text or of JSON,
// which others have, too.
func (r *Redactor) addLines(name, text string) {
	if !strings.Contains(text, "\n") {
		return
	}
	for i, line := range strings.Split(text, "\n") {
		// The first and the last line of a key are in every key.
		line = strings.TrimSpace(line)
		if len(line) >= minLine && !strings.HasPrefix(line, "-----") &&
			!strings.ContainsAny(line, " \t\"'") {
			r.values = append(r.values, value{fmt.Sprintf("%s line %d", name, i+1), line})
		}
	}
}

// formsOf returns a value as it is, with the ends of lines of Windows, and as a string in JSON.
func formsOf(text string) []string {
	forms := []string{text, strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r\n")}
	for _, html := range []bool{true, false} {
		var b strings.Builder
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(html)
		_ = enc.Encode(text) // a text has a form in JSON
		quoted := strings.TrimSpace(b.String())
		forms = append(forms, quoted[1:len(quoted)-1])
	}
	slices.Sort(forms)
	return slices.Compact(forms)
}

// span is a secret in a text.
type span struct {
	start, end int
	marker     string
}

// find returns the secrets in s, in order. They do not overlap.
func (r *Redactor) find(s string) []span {
	var all []span
	for _, v := range r.values {
		for at := 0; ; {
			i := strings.Index(s[at:], v.text)
			if i < 0 {
				break
			}
			all = append(all, span{at + i, at + i + len(v.text), "[redacted: " + v.name + "]"})
			at += i + len(v.text)
		}
	}
	if r.patterns {
		for _, f := range vars.FindSecrets(s) {
			all = append(all, span{f.Start, f.End, r.marker(f.Kind, s[f.Start:f.End])})
		}
	}
	slices.SortStableFunc(all, func(a, b span) int {
		return cmp.Or(a.start-b.start, b.end-a.end)
	})
	// Secrets that overlap become one.
	merged := all[:0]
	for _, next := range all {
		n := len(merged)
		if n == 0 || next.start >= merged[n-1].end {
			merged = append(merged, next)
			continue
		}
		if last := &merged[n-1]; next.end > last.end {
			last.end = next.end
			last.marker = r.marker("secrets", s[last.start:last.end])
		}
	}
	return merged
}

// marker returns the marker of a secret that was found by its form. Different secrets have
// different markers, as far as two bytes of a keyed digest can tell.
func (r *Redactor) marker(kind, text string) string {
	if strings.HasPrefix(text, "-----BEGIN ") {
		// Only letters count, so that a private key has one marker with and without numbers of lines.
		text = strings.Map(func(c rune) rune {
			if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' {
				return c
			}
			return -1
		}, text)
	}
	sum := sha256.Sum256(append(r.key[:], text...))
	return "[redacted: " + kind + " " + hex.EncodeToString(sum[:2]) + "]"
}

// Text returns s with markers in place of its secrets.
func (r *Redactor) Text(s string) string {
	if r == nil {
		return s
	}
	return replace(s, r.find(s))
}

func replace(s string, secrets []span) string {
	if len(secrets) == 0 {
		return s
	}
	var b strings.Builder
	done := 0
	for _, x := range secrets {
		b.WriteString(s[done:x.start])
		b.WriteString(x.marker)
		done = x.end
	}
	b.WriteString(s[done:])
	return b.String()
}

// brokenMarker returns a marker of a text of which the edited text has only a part; empty without
// one.
func brokenMarker(edited, text string) string {
	rest := markers().ReplaceAllString(edited, "")
	for _, marker := range markers().FindAllString(text, -1) {
		gone := strings.Count(edited, marker) < strings.Count(text, marker)
		body := strings.Trim(marker, "[]")
		if gone && (strings.Contains(rest, body) || strings.Contains(rest, "[redacted: ") ||
			strings.Contains(rest, strings.TrimPrefix(marker, "[redacted: "))) {
			return marker
		}
	}
	return ""
}

var markers = lazyregexp.New(`\[redacted: [^\[\]\n]{1,200}\]`)

// HasMarker reports whether s has a text of the form of a marker.
func HasMarker(s string) bool { return markers().MatchString(s) }

// MayHaveMarker reports whether s has a text that starts like a marker, such as a broken one.
func MayHaveMarker(s string) bool { return strings.Contains(s, "[redacted: ") }

// IsKeyStart reports whether s is the start of a private key, which more text may continue.
func IsKeyStart(s string) bool {
	_, open := vars.PrivateKey(s)
	return open
}

// MarkerError reports a marker whose secret cannot be put back.
type MarkerError struct {
	Marker, Reason string
}

func (e *MarkerError) Error() string { return fmt.Sprintf("the marker %s %s", e.Marker, e.Reason) }

// Restore returns edited, which is Text(original) after changes, with the secrets of original in
// place of their markers. Errors are *MarkerError: edited has a marker of a secret that original
// does not have, or it is not clear which secret a marker is for.
func (r *Redactor) Restore(edited, original string) (string, error) {
	if r == nil || !HasMarker(edited) && !HasMarker(r.Text(original)) {
		return edited, nil
	}
	secrets := make(map[string]string)
	for _, x := range r.find(original) {
		text := original[x.start:x.end]
		if other, ok := secrets[x.marker]; ok && other != text {
			secrets[x.marker] = ""
			continue
		}
		secrets[x.marker] = text
	}
	if marker := brokenMarker(edited, r.Text(original)); marker != "" {
		return "", &MarkerError{marker, "was changed; keep it whole, or remove it"}
	}
	var b strings.Builder
	done := 0
	for _, m := range markers().FindAllStringIndex(edited, -1) {
		marker := edited[m[0]:m[1]]
		literal := strings.Contains(original, marker)
		text, known := secrets[marker]
		switch {
		case literal && !known:
			continue
		case !known:
			return "", &MarkerError{marker, "stands for no secret of this file"}
		case literal, text == "":
			return "", &MarkerError{marker, "stands for more than one text of this file"}
		}
		b.WriteString(edited[done:m[0]])
		b.WriteString(text)
		done = m[1]
	}
	b.WriteString(edited[done:])
	return b.String(), nil
}
