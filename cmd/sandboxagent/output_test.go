package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// drawing matches the control sequences that the display may send: removing the status line and the
// rows below it, and colours.
var drawing = regexp.MustCompile("\r\x1b\\[K|\x1b\\[A\x1b\\[K|\x1b\\[(?:0|31|32)m")

// obeyed returns the first part of a text that a terminal obeys, beside line breaks and tabs.
func obeyed(text string) string {
	for i, r := range text {
		size := utf8.RuneLen(r)
		if r == utf8.RuneError {
			_, size = utf8.DecodeRuneInString(text[i:])
		}
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e ||
			r >= 0x2066 && r <= 0x2069 || r == utf8.RuneError && size == 1 {
			return text[max(i-40, 0):min(i+20, len(text))]
		}
	}
	return ""
}

// TestStreams checks what the streams of people clean, and that the others are exact.
func TestStreams(t *testing.T) {
	const text = "a\x1b[2J\x1b]0;x\x07\u009b\xff\rb\n"
	for name, tt := range map[string]struct {
		stream func(streams) io.Writer
		want   string
	}{
		"stderr":     {func(s streams) io.Writer { return s.err }, "a\\u009b\ufffd\nb\n"},
		"stdout":     {func(s streams) io.Writer { return s.out }, text},
		"raw stdout": {func(s streams) io.Writer { return s.raw.out }, text},
		"raw stderr": {func(s streams) io.Writer { return s.raw.err }, text},
	} {
		var b bytes.Buffer
		w := tt.stream(newStreams(nil, &b, &b))
		for i := range len(text) {
			if n, err := io.WriteString(w, text[i:i+1]); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if b.String() != tt.want {
			t.Errorf("%s: %q, want %q", name, b.String(), tt.want)
		}
	}
}

// TestRawStreams checks that only these files write past the streams that clean.
func TestRawStreams(t *testing.T) {
	allowed := map[string][]string{
		"std.raw.":   {"exec.go", "job.go"},
		"os.Stdout":  {"main.go"},
		"os.Stderr":  {"main.go"},
		"fmt.Print":  nil,
		"println(\"": nil,
	}
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for text, in := range allowed {
			if !strings.HasSuffix(name, "_test.go") && bytes.Contains(source, []byte(text)) &&
				!slices.Contains(in, name) {
				t.Errorf("%s has %s", name, text)
			}
		}
	}
}

// fill sets every text of a value.
func fill(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Struct:
		for _, field := range v.Fields() {
			if field.CanSet() {
				fill(field, text)
			}
		}
	case reflect.Slice:
		if v.Len() == 0 && v.Type().Elem().Kind() != reflect.Uint8 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		for i := range v.Len() {
			fill(v.Index(i), text)
		}
	}
}

// edit returns arguments of a tool for editing.
func edit(text string) string {
	args, _ := json.Marshal(map[string]string{
		"patch": "+" + text, "old_string": text, "new_string": text + "x",
	})
	return string(args)
}

// FuzzDisplay checks that no text of any event reaches the terminal as more than text.
func FuzzDisplay(f *testing.F) {
	f.Add("a\x1b]0;x\x07b\x1b[2J")
	f.Add("\u009b2J\xff\r\n\t\b")
	f.Add("{\"command\":\"\\u001b[2J\\u009b2J\"}")
	f.Fuzz(func(t *testing.T, text string) {
		if drawing.MatchString(text) {
			return // it cannot be told from what the display draws
		}
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close() //nolint:errcheck // nothing was written
		for _, tty := range []*os.File{nil, file} {
			var b bytes.Buffer
			p := newProgress(&b)
			p.tty, p.colour = tty, tty != nil
			if tty == nil {
				p.outputs = 2
			}
			for _, data := range []event.Data{
				&event.SessionStart{}, &event.SessionEnd{}, &event.UserInput{}, &event.ProcessingEnd{},
				&event.TextDelta{}, &event.ReasoningDelta{}, &event.TextEnd{ToolCalls: 1},
				&event.ToolCallStart{}, &event.ToolOutputDelta{}, &event.ToolCallEnd{IsError: true},
				&event.ToolCallStart{}, &event.ToolCallEnd{}, &event.TextDelta{},
				&event.SteeringInjected{}, &event.LoopDetection{}, &event.Status{}, &event.Retry{},
				&event.ContextUpdated{}, &event.Verify{}, &event.Warning{}, &event.Error{}, &event.Gap{},
			} {
				v := reflect.ValueOf(data).Elem()
				fill(v, text)
				for _, origin := range []event.Origin{{}, {AgentID: text, ParentID: text}} {
					p.observe(event.Event{
						SessionID: text, RunID: text, Origin: origin, Data: v.Interface().(event.Data),
					})
					p.draw()
				}
			}
			p.observe(event.Event{Data: event.ToolCallStart{Arguments: edit(text)}})
			p.observe(event.Event{Data: event.ToolCallEnd{Changes: []event.FileChange{{}}}})
			p.notify(text)
			r := event.Result{Changes: []event.FileChange{{Insertions: 3, Deletions: 1}}}
			fill(reflect.ValueOf(&r).Elem(), text)
			p.summary(r)
			p.close()
			out := b.String()
			if tty != nil {
				out = drawing.ReplaceAllString(out, "")
			}
			if part := obeyed(out); part != "" {
				t.Fatalf("a terminal obeys %q", part)
			}
		}
	})
}
