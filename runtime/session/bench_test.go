package session_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// BenchmarkAppend appends an entry of 1 KiB, and makes it durable. The native way is a write of as
// many bytes, and fsync.
func BenchmarkAppend(b *testing.B) {
	s, err := session.Create(filepath.Join(b.TempDir(), "s"), session.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // it is removed
	f, err := os.Create(filepath.Join(b.TempDir(), "plain"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it is removed
	text := map[string]string{"text": strings.Repeat("x", 1024)}
	line := []byte(strings.Repeat("x", 1160))
	var own, native time.Duration
	for b.Loop() {
		start := time.Now()
		if err := errors.Join(s.Append("note", text), s.Sync()); err != nil {
			b.Fatal(err)
		}
		own += time.Since(start)
		start = time.Now()
		_, err := f.Write(line)
		if err = errors.Join(err, f.Sync()); err != nil {
			b.Fatal(err)
		}
		native += time.Since(start)
	}
	b.ReportMetric(float64(own.Nanoseconds())/float64(b.N), "append-ns")
	b.ReportMetric(float64(own)/float64(native), "of-write-and-fsync")
}

// BenchmarkOpen opens a session of 10,000 entries: 2,500 rounds with results of 1 KiB.
func BenchmarkOpen(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "s")
	s, err := session.Create(dir, session.Options{})
	if err != nil {
		b.Fatal(err)
	}
	add := func(typ string, data any) {
		if err := s.Append(typ, data); err != nil {
			b.Fatal(err)
		}
	}
	add(session.TypeStarted, session.Started{ID: "s", Model: "m"})
	add(session.TypeRunStarted, session.RunStarted{RunID: "r"})
	add(session.TypeTurn, session.Turn{Kind: session.TurnUser, Parts: []llm.Part{llm.Text("go")}})
	for range 2500 {
		id := time.Now().String()
		turn := answer(id)
		turn.Parts = append([]llm.Part{llm.Text("I look.")}, turn.Parts...)
		add(session.TypeTurn, turn)
		add(session.TypeToolStarted, session.ToolStarted{RunID: "r", CallID: id, Name: "x"})
		r := result(id)
		r.Result.Parts = []llm.Part{llm.Text(strings.Repeat("a line\n", 150))}
		add(session.TypeToolResult, r)
		add(session.TypeTurn, session.Turn{Kind: session.TurnSteering})
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for b.Loop() {
		s, r, err := session.Open(dir, session.Options{})
		if err != nil || len(r.Conversation) != 7501 {
			b.Fatal(len(r.Conversation), err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
