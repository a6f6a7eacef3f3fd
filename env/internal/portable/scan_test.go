package portable

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
)

const testMark = "00112233445566778899aabbccddeeff"

// scanned is what a scanner makes of a stream.
func scanned(r io.Reader) (data string, records []record, err error) {
	var b strings.Builder
	s := newScanner(r)
	for {
		part, rec, err := s.next(testMark)
		switch {
		case err != nil:
			return b.String(), records, err
		case rec.kind != 0:
			records = append(records, rec)
		default:
			b.Write(part)
		}
	}
}

func TestScanner(t *testing.T) {
	rec := func(s string) string { return testMark + s + "\n" }
	long := strings.Repeat(testMark[:31], 5000)
	for _, tt := range []struct {
		name, in, data string
		records        []record
		err            error
	}{
		{"nothing", "", "", nil, io.ErrUnexpectedEOF},
		{"only bytes", "a\x00b\n", "a\x00b\n", nil, io.ErrUnexpectedEOF},
		{"a record", rec(" e 0 0"), "", []record{{'e', 0, 0}}, io.ErrUnexpectedEOF},
		{"a record in a line", "ab" + rec(" x 137 1") + "cd", "abcd", []record{{'x', 137, 1}}, io.ErrUnexpectedEOF},
		{"two records", rec(" a 12 13") + rec(" e 0 0"), "", []record{{'a', 12, 13}, {'e', 0, 0}}, io.ErrUnexpectedEOF},
		{"almost a mark", testMark[:31] + "x", testMark[:31] + "x", nil, io.ErrUnexpectedEOF},
		{"beginnings of marks", long, long, nil, io.ErrUnexpectedEOF},
		{"a mark behind its beginning", testMark[:20] + rec(" e 0 0"), testMark[:20], []record{{'e', 0, 0}}, io.ErrUnexpectedEOF},
		{"a cut record", testMark + " e 0", testMark + " e 0", nil, io.ErrUnexpectedEOF},
		{"no number", rec(" e x 0"), "", nil, env.ErrProtocol},
		{"a negative number", rec(" e -1 0"), "", nil, env.ErrProtocol},
		{"a large number", rec(" e 4294967296 0"), "", nil, env.ErrProtocol},
		{"a long kind", rec(" ee 0 0"), "", nil, env.ErrProtocol},
		{"no kind", rec(""), "", nil, env.ErrProtocol},
		{"more numbers", rec(" e 0 0 0"), "", nil, env.ErrProtocol},
		{"no end", testMark + strings.Repeat(" ", 200), "", nil, env.ErrProtocol},
	} {
		for how, wrap := range map[string]func(io.Reader) io.Reader{"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "error with data": iotest.DataErrReader} {
			t.Run(tt.name+" "+how, func(t *testing.T) {
				data, records, err := scanned(wrap(strings.NewReader(tt.in)))
				if data != tt.data || !errors.Is(err, tt.err) {
					t.Errorf("%d bytes of data, error %v; want %d, %v", len(data), err, len(tt.data), tt.err)
				}
				if diff := cmp.Diff(tt.records, records, cmp.AllowUnexported(record{})); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

func FuzzScanner(f *testing.F) {
	f.Add([]byte("ab"), []byte("cd"), 3, 4)
	f.Add([]byte(testMark[:31]), []byte(testMark[1:]), 0, 255)
	f.Fuzz(func(t *testing.T, before, after []byte, a, b int) {
		if a < 0 || b < 0 || a >= maxNumber || b >= maxNumber {
			t.Skip("not what a shell sends")
		}
		in := fmt.Sprintf("%s%s x %d %d\n%s", before, testMark, a, b, after)
		if strings.Count(in, testMark) != 1 {
			t.Skip("a mark in the data")
		}
		for _, r := range []io.Reader{strings.NewReader(in), iotest.HalfReader(strings.NewReader(in)), iotest.OneByteReader(strings.NewReader(in))} {
			data, records, err := scanned(r)
			if data != string(before)+string(after) || len(records) != 1 || records[0] != (record{'x', a, b}) || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("%q gives %q, %v, %v", in, data, records, err)
			}
		}
	})
}

// FuzzHostile gives the parsers of what a place says anything.
func FuzzHostile(f *testing.F) {
	f.Add("system Linux\numask 0022\nhas tar\nshell /bin/sh\n")
	f.Add("/proc/12/environ\n\n12 (a) b) S 1 " + strings.Repeat("1 ", 20) + "\n")
	f.Add(testMark + " 81a4 5 1 2001-02-03 04:05:06.000000007 +0000 /a/b\n")
	f.Fuzz(func(t *testing.T, s string) {
		if facts, err := parseFacts(s); err == nil {
			_ = facts.info("x")
		}
		_, _ = parseInfo("x", s)
		_, _ = parseRecord(s)
		table := parseTable(s)
		target := target{root: 12}
		for _, pid := range target.among(parseMarked(s), table, 13) {
			if pid < 2 || pid == 13 {
				t.Errorf("process %d is to be killed", pid)
			}
		}
		var whole strings.Builder
		if err := eachLine([]byte(s), testMark, func(line string) error {
			whole.WriteString(testMark + " " + line + "\n")
			return nil
		}); err == nil && whole.String() != s {
			t.Errorf("the lines of %q are %q", s, whole.String())
		}
	})
}
