package portable_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/portable"
)

// scripts counts the operations that shells are told, without the looks at whether they live.
type scripts struct {
	io.WriteCloser
	n *atomic.Int64
}

func (s scripts) Write(p []byte) (int, error) {
	if !bytes.Contains(p, []byte("sa_dead")) || bytes.Contains(p, []byte("sa_dead()")) {
		s.n.Add(int64(bytes.Count(p, []byte("{ sa_m="))))
	}
	return s.WriteCloser.Write(p)
}

// TestReadFiles reads what can be read together in one round trip, and the rest as well.
func TestReadFiles(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		var told atomic.Int64
		e := k.open(t, func(cfg *portable.Config) {
			start := cfg.Start
			cfg.Start = func(ctx context.Context) (portable.Shell, error) {
				s, err := start(ctx)
				if err == nil {
					s.Stdin = scripts{s.Stdin, &told}
				}
				return s, err
			}
		})
		want := make(map[string][]byte)
		names := []string{"missing", "", "."}
		for i, n := range []int{0, 1, 1000, 64 << 10, 128 << 10, 128<<10 + 1, 300 << 10} {
			name := fmt.Sprint("file ", i)
			want[name] = noise(n)
			names = append(names, name)
			if _, err := e.WriteFile(t.Context(), name, bytes.NewReader(want[name]), env.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			names []string
			trips int64
		}{
			{names[:8], 1},
			{names, 3}, // two are not small
			{nil, 0},
		} {
			before := told.Load()
			contents, err := e.ReadFiles(t.Context(), c.names, 1<<20)
			if trips := told.Load() - before; err != nil || len(contents) != len(c.names) || trips != c.trips {
				t.Fatalf("%d files: %d contents in %d round trips, want %d, error %v", len(c.names), len(contents), trips, c.trips, err)
			}
			for i, got := range contents {
				wantErr := map[string]error{"missing": fs.ErrNotExist, "": fs.ErrInvalid, ".": env.ErrIsDir}[c.names[i]]
				if got.Name != c.names[i] || !bytes.Equal(got.Data, want[got.Name]) || !errors.Is(got.Err, wantErr) || wantErr == nil && got.Data == nil {
					t.Errorf("%q: content of %q, %d bytes, error %v", c.names[i], got.Name, len(got.Data), got.Err)
				}
			}
		}
	})
}
