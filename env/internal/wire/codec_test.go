package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// someErrors are errors of environments.
func someErrors() map[string]error {
	path := &fs.PathError{Op: "open", Path: "a\xffb", Err: fs.ErrNotExist}
	list := map[string]error{
		"plain":   errors.New("the disk is on fire"),
		"no text": errors.New(""),
		"path":    path,
		"start":   &env.StartError{Argv: []string{"a b", "c"}, Err: path},
		"chdir": &env.StartError{Argv: []string{"x"}, Err: &fs.PathError{
			Op: "chdir", Path: "/d",
			Err: env.ErrNotDir,
		}},
		"unreadable": &search.UnreadableError{Count: 3, First: path},
		"wrapped":    fmt.Errorf("while walking: %w", path),
		"deep": fmt.Errorf("a: %w", fmt.Errorf("b: %w", &env.StartError{
			Argv: []string{"x"},
			Err:  fs.ErrPermission,
		})),
		"joined":    errors.Join(fs.ErrClosed, env.ErrGone),
		"two":       fmt.Errorf("%w: %w", env.ErrUnknownOutcome, env.ErrGone),
		"not UTF-8": errors.New("\xff\xfe"),
		"newlines":  errors.New("one\ntwo\x00"),
		"path around": &fs.PathError{Op: "write", Path: "x", Err: fmt.Errorf("in place: %w",
			env.ErrNoSpace)},
	}
	for _, c := range conditions {
		list["condition "+c.name] = fmt.Errorf("this and that: %w", c.err)
	}
	return list
}

// overTheWire sends an error.
func overTheWire(t *testing.T, err error) error {
	t.Helper()
	data, encodeErr := json.Marshal(ToError(err))
	if encodeErr != nil {
		t.Fatal(encodeErr)
	}
	var w *Error
	if err := Decode(data, &w); err != nil {
		t.Fatal(err)
	}
	return w.Err()
}

func TestErrorsSurvive(t *testing.T) {
	for name, err := range someErrors() {
		t.Run(name, func(t *testing.T) {
			got := overTheWire(t, err)
			if got == nil {
				t.Fatal("it is none any more")
			}
			if strings.TrimSpace(err.Error()) != "" && got.Error() != err.Error() {
				t.Errorf("text %q, want %q", got, err)
			}
			for _, c := range conditions {
				if errors.Is(got, c.err) != errors.Is(err, c.err) {
					t.Errorf("is %v: %t", c.err, errors.Is(got, c.err))
				}
			}
			var path, wantPath *fs.PathError
			if errors.As(got, &path) != errors.As(err, &wantPath) {
				t.Errorf("has a path: %t", path != nil)
			} else if path != nil && (path.Op != wantPath.Op || path.Path != wantPath.Path ||
				path.Err.Error() != wantPath.Err.Error()) {
				t.Errorf("path error %#v, want %#v", path, wantPath)
			}
			var start, wantStart *env.StartError
			if errors.As(got, &start) != errors.As(err, &wantStart) {
				t.Errorf("is a start error: %t", start != nil)
			} else if start != nil && start.Argv[0] != wantStart.Argv[0] {
				t.Errorf("start error %#v, want %#v", start, wantStart)
			}
			var unreadable, wantUnreadable *search.UnreadableError
			if errors.As(got, &unreadable) != errors.As(err, &wantUnreadable) {
				t.Errorf("is an unreadable error: %t", unreadable != nil)
			} else if unreadable != nil && unreadable.Count != wantUnreadable.Count {
				t.Errorf("count %d", unreadable.Count)
			}
			if again := overTheWire(t, got); again.Error() != got.Error() {
				t.Errorf("the second time %q, the first time %q", again, got)
			}
		})
	}
	if ToError(nil) != nil || (*Error)(nil).Err() != nil {
		t.Error("no error becomes one")
	}
}

func TestTextSurvives(t *testing.T) {
	for name, s := range map[string]string{
		"empty": "", "ASCII": "abc", "quotes": `"\`, "UTF-8": "ä€𝄞\u2028", "not UTF-8": "a\xffb",
		"half a character": "\xe2\x82",
		"NUL":              "a\x00b", "like the other form": `{"base64":"AA=="}`,
		"replacement character": "\ufffd",
		"escapes":               strings.Repeat("\x01", 64<<10),
		"many brackets":         strings.Repeat("<", 64<<10),
	} {
		t.Run(name, func(t *testing.T) {
			data, err := json.Marshal(Text(s))
			if err != nil {
				t.Fatal(err)
			}
			if len(data) > 6*longText && len(data) > 2*len(s) {
				t.Errorf("%d bytes become %d", len(s), len(data))
			}
			var got Text
			if err := json.Unmarshal(data, &got); err != nil || string(got) != s {
				t.Errorf("%q becomes %q by %s: %v", s, got, data, err)
			}
		})
	}
	for _, bad := range []string{"1", "null", "[]", "{}", `{"base64":1}`, `{"base64":"="}`, `"\ud8"`} {
		var got Text
		if err := json.Unmarshal([]byte(`{"name":`+bad+`}`), &struct{ Name *Text }{&got}); err == nil &&
			bad != "null" {
			t.Errorf("%s is taken as %q", bad, got)
		}
	}
}

func TestFrames(t *testing.T) {
	end := AppendFrame(nil, FrameEnd, []byte("{}"))
	data := AppendFrame(nil, FrameData, []byte("abc"))
	for _, c := range []struct {
		name  string
		input []byte
		kinds []FrameKind
		err   error
	}{
		{"nothing", nil, nil, io.ErrUnexpectedEOF},
		{"only an end", end, []FrameKind{FrameEnd}, io.EOF},
		{"data and an end", slices.Concat(data, end), []FrameKind{FrameData, FrameEnd}, io.EOF},
		{"no end", data, []FrameKind{FrameData}, io.ErrUnexpectedEOF},
		{"half a header", data[:3], nil, io.ErrUnexpectedEOF},
		{"half a payload", data[:7], nil, io.ErrUnexpectedEOF},
		{"only a header", data[:5], nil, io.ErrUnexpectedEOF},
		{"more behind the end", slices.Concat(end, data), []FrameKind{FrameEnd}, env.ErrProtocol},
		{"a byte behind the end", slices.Concat(end, data[:1]), []FrameKind{FrameEnd}, env.ErrProtocol},
		{"kind 0", []byte{0, 0, 0, 0, 0}, nil, env.ErrProtocol},
		{"kind 7", []byte{7, 0, 0, 0, 0}, nil, env.ErrProtocol},
		{"too large", []byte{5, 0xff, 0xff, 0xff, 0xff}, nil, env.ErrProtocol},
		{
			"as large as may be", append(AppendFrame(nil, FrameData, make([]byte, MaxFrame)), end...),
			[]FrameKind{FrameData, FrameEnd},
			io.EOF,
		},
		{"a little larger", AppendFrame(nil, FrameData, make([]byte, MaxFrame+1)), nil, env.ErrProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			frames := &FrameReader{R: bytes.NewReader(c.input)}
			var kinds []FrameKind
			for {
				kind, _, err := frames.Next()
				if err != nil {
					if !errors.Is(err, c.err) {
						t.Errorf("the error is %v, want %v", err, c.err)
					}
					break
				}
				kinds = append(kinds, kind)
			}
			if diff := cmp.Diff(c.kinds, kinds); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestFramesLost has the stream break behind the last frame, which is no violation.
func TestFramesLost(t *testing.T) {
	for _, lost := range []error{io.ErrUnexpectedEOF, io.ErrClosedPipe} {
		frames := &FrameReader{R: io.MultiReader(bytes.NewReader(AppendFrame(nil, FrameEnd,
			[]byte("{}"))), iotest.ErrReader(lost))}
		if kind, _, err := frames.Next(); kind != FrameEnd || err != nil {
			t.Errorf("the last frame: kind %d, %v", kind, err)
		}
		if _, _, err := frames.Next(); !errors.Is(err, lost) || errors.Is(err, env.ErrProtocol) {
			t.Errorf("behind it: %v, want %v", err, lost)
		}
	}
}

// FuzzFrames: whatever comes is either frames, which encode to what came, or one of the three
// errors.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{})
	f.Add(AppendFrame(AppendFrame(nil, FrameStdout, []byte("abc")), FrameEnd, []byte("{}")))
	f.Add(AppendFrame(nil, FrameResult, []byte(`{"exit_code":1}`)))
	f.Add([]byte{9, 0, 0, 0, 0})
	f.Add([]byte{5, 0, 4, 0, 0, 1})
	f.Fuzz(func(t *testing.T, input []byte) {
		frames := &FrameReader{R: bytes.NewReader(input)}
		var seen []byte
		for {
			kind, payload, err := frames.Next()
			if err == nil {
				seen = AppendFrame(seen, kind, payload)
				continue
			}
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err,
				env.ErrProtocol) {
				t.Fatalf("an unexpected error: %v", err)
			}
			if !bytes.HasPrefix(input, seen) || (errors.Is(err, io.EOF) && len(seen) != len(input)) {
				t.Fatalf("%x was read as %x, %v", input, seen, err)
			}
			return
		}
	})
}

func FuzzText(f *testing.F) {
	for _, s := range []string{"", "abc", "\xff", "ä\x00", `{"base64":""}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		data, err := json.Marshal(Text(s))
		if err != nil {
			t.Fatal(err)
		}
		var got Text
		if err := json.Unmarshal(data, &got); err != nil || string(got) != s {
			t.Fatalf("%q becomes %q by %s: %v", s, got, data, err)
		}
		_ = json.Unmarshal([]byte(s), &got) // whatever it is
	})
}

// fuzzDecode checks that what was decoded from any input encodes to something that decodes to the
// same.
func fuzzDecode[T any](f *testing.F, examples ...T) {
	for _, e := range examples {
		data, err := json.Marshal(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var first, second T
		if err := Decode(data, &first); err != nil {
			if !errors.Is(err, env.ErrProtocol) {
				t.Fatalf("an unexpected error: %v", err)
			}
			return
		}
		encoded, err := json.Marshal(first)
		if err != nil {
			t.Fatal(err)
		}
		if err := Decode(encoded, &second); err != nil {
			t.Fatalf("%s: %v", encoded, err)
		}
		again, err := json.Marshal(second)
		if err != nil || !bytes.Equal(encoded, again) {
			t.Fatalf("%s becomes %s, %v", encoded, again, err)
		}
	})
}

func FuzzExecRequest(f *testing.F) {
	fuzzDecode(f, ExecRequest{}, ExecRequest{
		Argv: []Text{"a", "\xff"}, Dir: "/", Vars: []Text{"A=b"}, Timeout: 1, Stdin: true,
		TTY: &env.TTYSize{Columns: 1},
	})
}

func FuzzEndRecord(f *testing.F) {
	fuzzDecode(f, EndRecord{}, EndRecord{
		Value: json.RawMessage(`{"Size":1}`),
		Error: ToError(fs.ErrExist),
	})
}

// FuzzWireError: whatever comes as an error is one that can be looked at and sent on, with the same
// text and conditions.
func FuzzWireError(f *testing.F) {
	for _, err := range someErrors() {
		data, encodeErr := json.Marshal(ToError(err))
		if encodeErr != nil {
			f.Fatal(encodeErr)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var w *Error
		if Decode(data, &w) != nil || w == nil {
			return
		}
		err := w.Err()
		if err == nil || err.Error() == "" {
			t.Fatalf("%s is no error", data)
		}
		if len(err.Error()) > maxErrorText {
			return // which is cut
		}
		got := overTheWire(t, err)
		for _, c := range conditions {
			if errors.Is(got, c.err) != errors.Is(err, c.err) {
				t.Fatalf("%s: is %v: %t", data, c.err, errors.Is(got, c.err))
			}
		}
		if got.Error() != err.Error() {
			t.Fatalf("%s: text %q, want %q", data, got, err)
		}
	})
}
