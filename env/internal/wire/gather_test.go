package wire

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
)

// writes is a writer that keeps what each call gave.
type writes struct{ list [][]byte }

func (w *writes) Write(p []byte) (int, error) {
	w.list = append(w.list, bytes.Clone(p))
	return len(p), nil
}

// TestGatherer writes pieces of all sizes, with pauses. The bytes that arrive are those
// that were written.
func TestGatherer(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 0))
		w := &writes{}
		g := &gatherer{w: w}
		var want []byte
		for range 200 {
			p := make([]byte, r.IntN([]int{2, 100, 2 * gatherSize}[r.IntN(3)]))
			for i := range p {
				p[i] = byte(r.Uint32())
			}
			n, err := g.Write(p)
			if n != len(p) || err != nil {
				t.Fatalf("%d bytes: %d, %v", len(p), n, err)
			}
			want = append(want, p...)
			clear(p) // it is the caller's again
			switch r.IntN(4) {
			case 0:
				runtime.Gosched()
			case 1:
				g.linger()
			}
		}
		g.linger()
		if got := slices.Concat(w.list...); !bytes.Equal(got, want) {
			t.Fatalf("seed %d: %d bytes arrived, of which the first differs, or is missing, at %d; %d "+
				"were written", seed, len(got), differ(got, want), len(want))
		}
	}
}

// differ returns the index at which a and b start to differ.
func differ(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// TestGathererJoins writes two small writes one right after the other, and nothing after them.
func TestGathererJoins(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		w := &writes{}
		g := &gatherer{w: w}
		_, _ = io.WriteString(g, "one, ") // the writer has no errors
		_, _ = io.WriteString(g, "two")
		synctest.Wait()
		if len(w.list) != 1 || string(w.list[0]) != "one, two" {
			t.Errorf("the writes are %q", w.list)
		}
	})
}

// TestGathererFails writes to what fails: somebody is got.
func TestGathererFails(t *testing.T) {
	for name, size := range map[string]int{"small": 1, "large": gatherSize + 1} {
		t.Run(name, func(t *testing.T) {
			r, w := io.Pipe()
			broken := errors.New("broken")
			_ = r.CloseWithError(broken)
			g := &gatherer{w: w}
			_, first := g.Write([]byte("x"))
			g.linger()
			if _, err := g.Write(make([]byte, size)); !errors.Is(err, broken) || first != nil {
				t.Errorf("the errors are %v and %v", first, err)
			}
		})
	}
}

// TestGathererLingers closes a stream that takes nothing.
func TestGathererLingers(t *testing.T) {
	r, w := io.Pipe()
	g := &gatherer{w: w}
	_, _ = g.Write([]byte("x")) // it waits
	g.linger()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
