package session_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
