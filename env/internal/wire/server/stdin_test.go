package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
)

func feedString(t *testing.T, s *stdin, offset int64, data string, end bool) error {
	t.Helper()
	return s.feed(t.Context(), offset, strings.NewReader(data), end, make([]byte, 3))
}

// offered waits until a piece is offered to the command.
func offered(t *testing.T, s *stdin) {
	t.Helper()
	wiretest.Eventually(t, "a piece", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.data) > 0
	})
}

// drain reads all of a command's standard input.
func drain(s *stdin) <-chan string {
	got := make(chan string, 1)
	go func() {
		data, err := io.ReadAll(s)
		if err != nil {
			data = []byte(err.Error())
		}
		got <- string(data)
	}()
	return got
}

func TestStdinPieces(t *testing.T) {
	type piece struct {
		offset int64
		data   string
		end    bool
		err    error
	}
	for _, c := range []struct {
		name   string
		pieces []piece
		want   string
	}{
		{"in order", []piece{{data: "hello "}, {offset: 6, data: "world", end: true}}, "hello world"},
		{"a separate end", []piece{{data: "hello"}, {offset: 5, end: true}}, "hello"},
		{"only an end", []piece{{end: true}}, ""},
		{"repeated", []piece{{data: "hello"}, {data: "hello"}, {data: "hello", end: true}}, "hello"},
		{"repeated with more", []piece{{data: "hello"}, {data: "hello world", end: true}}, "hello world"},
		{
			"overlapping",
			[]piece{{data: "hello"}, {offset: 3, data: "lo world", end: true}},
			"hello world",
		},
		{
			"wholly passed",
			[]piece{{data: "hello"}, {offset: 1, data: "ell"}, {offset: 5, end: true}},
			"hello",
		},
		{"a gap", []piece{
			{data: "hello"},
			{offset: 6, data: "world", err: errGap},
			{offset: 5, end: true},
		}, "hello"},
		{"more after the end", []piece{
			{data: "hello", end: true},
			{offset: 5, data: "x"},
			{offset: 5, end: true},
		}, "hello"},
		{"too large", []piece{
			{data: strings.Repeat("x", wire.Window+1), err: errPieceTooLarge},
			{end: true},
		}, strings.Repeat("x", wire.Window)},
	} {
		t.Run(c.name, func(t *testing.T) {
			wiretest.NoLeaks(t)
			s := newStdin()
			got := drain(s)
			for i, p := range c.pieces {
				if err := feedString(t, s, p.offset, p.data, p.end); !errors.Is(err, p.err) {
					t.Fatalf("piece %d: %v, want %v", i, err, p.err)
				}
			}
			// What came before a piece that is too large is taken all the same.
			if data := <-got; strings.TrimRight(data, "x") != strings.TrimRight(c.want, "x") ||
				len(data) > wire.Window {
				t.Errorf("the command has read %q", data)
			}
			if answer := s.state(); !answer.Closed {
				t.Errorf("the answer is %+v", answer)
			}
		})
	}
}

func TestStdinWaitsForReader(t *testing.T) {
	wiretest.NoLeaks(t)
	s := newStdin()
	fed := make(chan error, 1)
	go func() { fed <- feedString(t, s, 0, "abc", false) }()
	one := make([]byte, 1)
	for _, want := range "ab" {
		if _, err := io.ReadFull(s, one); err != nil || one[0] != byte(want) {
			t.Fatalf("%q, %v", one, err)
		}
	}
	select {
	case err := <-fed:
		t.Fatalf("a piece is answered before it was read: %v", err)
	default:
	}
	if _, err := io.ReadFull(s, one); err != nil {
		t.Fatal(err)
	}
	if err := <-fed; err != nil {
		t.Fatal(err)
	}
	if got := s.state(); got != (wire.StdinState{Taken: 3}) {
		t.Errorf("the answer is %+v", got)
	}
}

func TestStdinEnds(t *testing.T) {
	t.Run("the command takes no more", func(t *testing.T) {
		wiretest.NoLeaks(t)
		s := newStdin()
		fed := make(chan error, 1)
		go func() { fed <- feedString(t, s, 0, "abc", false) }()
		offered(t, s)
		s.close()
		if err := <-fed; err != nil {
			t.Error(err)
		}
		if _, err := s.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("read: %v", err)
		}
		if got := s.state(); got != (wire.StdinState{Closed: true}) {
			t.Errorf("the answer is %+v", got)
		}
	})
	t.Run("the request ends", func(t *testing.T) {
		wiretest.NoLeaks(t)
		s := newStdin()
		ctx, cancel := context.WithCancel(t.Context())
		fed := make(chan error, 1)
		buf := make([]byte, 3)
		go func() { fed <- s.feed(ctx, 0, strings.NewReader("abc"), false, buf) }()
		offered(t, s)
		cancel()
		if err := <-fed; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		s.mu.Lock()
		if len(s.data) > 0 {
			t.Error("the command still reads from the buffer")
		}
		s.mu.Unlock()
		got := drain(s)
		if err := feedString(t, s, 0, "abc", true); err != nil {
			t.Error(err)
		}
		if data := <-got; data != "abc" {
			t.Errorf("the command has read %q", data)
		}
	})
	t.Run("the body breaks", func(t *testing.T) {
		s := newStdin()
		got := drain(s)
		broken := errors.New("broken")
		body := io.MultiReader(strings.NewReader("ab"), iotest.ErrReader(broken))
		if err := s.feed(t.Context(), 0, body, true, make([]byte, 3)); !errors.Is(err, broken) {
			t.Error(err)
		}
		if answer := s.state(); answer != (wire.StdinState{Taken: 2}) {
			t.Errorf("the answer is %+v", answer)
		}
		if err := feedString(t, s, 0, "abc", true); err != nil {
			t.Error(err)
		}
		if data := <-got; data != "abc" {
			t.Errorf("the command has read %q", data)
		}
	})
}

func TestStdinLaterPieceTakesOver(t *testing.T) {
	wiretest.NoLeaks(t)
	s := newStdin()
	blocked, feeding := io.Pipe()
	first := make(chan error, 1)
	go func() { first <- s.feed(t.Context(), 0, blocked, true, make([]byte, 3)) }()
	if _, err := feeding.Write([]byte("ab")); err != nil {
		t.Fatal(err)
	}
	offered(t, s)
	second := make(chan error, 1)
	go func() { second <- feedString(t, s, 0, "abcdef", true) }()
	if err := <-first; !errors.Is(err, errReplaced) {
		t.Errorf("the first piece: %v", err)
	}
	var all bytes.Buffer
	if _, err := io.Copy(&all, s); err != nil || all.String() != "abcdef" {
		t.Errorf("the command has read %q, %v", all.String(), err)
	}
	if err := <-second; err != nil {
		t.Error(err)
	}
	_ = blocked.Close()
}
