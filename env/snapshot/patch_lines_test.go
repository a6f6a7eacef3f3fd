package snapshot

import (
	"bufio"
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// applyEdits makes b of a, or reports why the edits are invalid.
func applyEdits(a, b lines, edits []edit) error {
	var got []byte
	at, bt := 0, 0
	for _, e := range edits {
		if e.a0 < at || e.b0-bt != e.a0-at || e.a1 < e.a0 || e.b1 < e.b0 || e.a0 == e.a1 && e.b0 == e.b1 {
			return fmt.Errorf("edit %+v after %d, %d", e, at, bt)
		}
		got = append(got, a.text[a.starts[at]:a.starts[e.a0]]...)
		got = append(got, b.text[b.starts[e.b0]:b.starts[e.b1]]...)
		at, bt = e.a1, e.b1
	}
	got = append(got, a.text[a.starts[at]:]...)
	if !bytes.Equal(got, b.text) {
		return fmt.Errorf("the edits %v do not lead to the new text", edits)
	}
	return nil
}

func FuzzDiffLines(f *testing.F) {
	f.Add([]byte("a\nb\nc\n"), []byte("b\nc\nd"))
	f.Add([]byte("x\nx\ny\nx\n"), []byte("x\ny\nx\nx\nx\n"))
	f.Add([]byte(strings.Repeat("a\nb\n", 200)), []byte(strings.Repeat("b\nb\na\n", 150)))
	f.Fuzz(func(t *testing.T, x, y []byte) {
		a, b := splitLines(x), splitLines(y)
		if err := applyEdits(a, b, diffLines(a, b)); err != nil {
			t.Error(err)
		}
	})
}

// The diff finds scattered edits one by one, more than the bounded search alone would.
func TestDiffLinesIsSmall(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	tests := []struct {
		name string
		line func(i int) string
	}{
		{"distinct lines", func(i int) string { return fmt.Sprintf("line %d\n", i) }},
		{"some lines repeat", func(i int) string {
			if i%3 == 0 {
				return "}\n"
			}
			return fmt.Sprintf("line %d\n", i)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var old, now bytes.Buffer
			changed := 0
			for i := range 20_000 {
				old.WriteString(tt.line(i))
				if rng.IntN(40) == 0 {
					now.WriteString("changed\n")
					changed++
				} else {
					now.WriteString(tt.line(i))
				}
			}
			a, b := splitLines(old.Bytes()), splitLines(now.Bytes())
			edits := diffLines(a, b)
			if err := applyEdits(a, b, edits); err != nil {
				t.Fatal(err)
			}
			total := 0
			for _, e := range edits {
				total += e.a1 - e.a0
			}
			if total > changed*11/10 {
				t.Errorf("%d lines replaced for %d changed ones", total, changed)
			}
		})
	}
}

// BenchmarkWriteHunks diffs the worst input: texts that share only a few, repeated lines.
func BenchmarkWriteHunks(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(kinds int) []byte {
		var buf bytes.Buffer
		for buf.Len() < maxTextDiff {
			fmt.Fprintf(&buf, "%d\n", rng.IntN(kinds))
		}
		return buf.Bytes()[:maxTextDiff]
	}
	for _, kinds := range []int{2, 1000, 10_000_000} {
		x, y := random(kinds), random(kinds)
		b.Run(fmt.Sprint(kinds), func(b *testing.B) {
			for b.Loop() {
				writeHunks(bufio.NewWriter(&bytes.Buffer{}), x, y)
			}
		})
	}
}
