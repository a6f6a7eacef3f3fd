package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/net/http2"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
)

// pieces is a reader that gives one piece with each Read, once it may.
type pieces struct {
	pieces [][]byte
	gates  []chan struct{} // nil: at once
	waits  chan int        // which piece is waited for
}

// newPieces returns a reader of content in pieces of the given sizes. It stops before the one of
// the given index.
func newPieces(content []byte, stop int, sizes ...int) (p *pieces, release func()) {
	p = &pieces{gates: make([]chan struct{}, len(sizes)), waits: make(chan int, 1)}
	for _, size := range sizes {
		p.pieces = append(p.pieces, content[:size])
		content = content[size:]
	}
	gate := make(chan struct{})
	p.gates[stop] = gate
	return p, sync.OnceFunc(func() { close(gate) })
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.pieces) == 0 {
		return 0, io.EOF
	}
	piece, gate := p.pieces[0], p.gates[0]
	p.pieces, p.gates = p.pieces[1:], p.gates[1:]
	if gate != nil {
		p.waits <- len(p.pieces)
		<-gate
	}
	return copy(b, piece), nil
}

// idle waits until no reader is being read.
func idle(t *testing.T) {
	t.Helper()
	stacks := make([]byte, 4<<20)
	wiretest.Eventually(t, "the end of a Read", func() bool {
		return !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("wire.(*source).fill"))
	})
}

// numbered returns content in which every piece is another one.
func numbered(size int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "%d,", i)
	}
	return b.Bytes()[:size]
}

// TestSourceReadAcrossRequests has a Read that one request has started end while the next one is at
// any offset.
func TestSourceReadAcrossRequests(t *testing.T) {
	const first, second, third = 50_000, 50_000, 50_000
	for _, tc := range []struct {
		name  string
		sizes []int // the last but one is waited for
		at    int   // where the next request is by then
		want  error
	}{
		{"what is kept grows", []int{first, second, third, 10}, 10, nil},
		{"too much to keep, at the start", []int{60_000, 60_000, 60_000, 60_000, 60_000, 60_000}, 0, nil},
		{
			"too much to keep, in the middle",
			[]int{60_000, 60_000, 60_000, 60_000, 60_000, 60_000},
			100_001, nil,
		},
		{
			"too much to keep, at the end",
			[]int{60_000, 60_000, 60_000, 60_000, 60_000, 60_000},
			240_000,
			nil,
		},
		{
			"too much already",
			[]int{60_000, 60_000, 60_000, 60_000, 60_000, 60_000, 60_000},
			0,
			errIncomplete,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wiretest.NoLeaks(t)
			total, before := 0, 0
			for i, size := range tc.sizes {
				if total += size; i < len(tc.sizes)-2 {
					before = total
				}
			}
			content := numbered(total)
			r, release := newPieces(content, len(tc.sizes)-2, tc.sizes...)
			defer release()
			s := newSource(t.Context(), r)
			a, err := s.upload()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(a, make([]byte, before)); err != nil {
				t.Fatal(err)
			}
			over := make(chan error, 1)
			go func() {
				_, err := a.Read(make([]byte, 1))
				over <- err
			}()
			<-r.waits
			b, err := s.upload()
			if !errors.Is(err, tc.want) {
				t.Fatalf("upload gives %v, want %v", err, tc.want)
			}
			if err := <-over; !errors.Is(err, errContentClosed) {
				t.Errorf("the request before ends with %v", err)
			}
			if err != nil {
				return
			}
			got := make([]byte, tc.at, total)
			if _, err := io.ReadFull(b, got); err != nil {
				t.Fatal(err)
			}
			release()
			idle(t)
			rest, err := io.ReadAll(b)
			if got = append(got, rest...); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes came, and not the same: %v", len(got), err)
			}
			if len(content) > keepContent {
				if _, err := s.upload(); !errors.Is(err, errIncomplete) {
					t.Errorf("one more request: %v", err)
				}
				if s.kept != nil {
					t.Errorf("%d bytes are kept for nothing", len(s.kept))
				}
			}
		})
	}
}

// TestSourceHole reads bytes that are no longer kept, which is an error.
func TestSourceHole(t *testing.T) {
	s := newSource(t.Context(), iotest.ErrReader(errors.New("the disk is broken")))
	s.kept, s.chunk, s.total = []byte("01"), []byte("678"), 9
	for pos, want := range []string{"01", "1", "", "", "", "", "678", "78", "8"} {
		u := &upload{s: s, pos: int64(pos)}
		p := make([]byte, 10)
		n, err := u.Read(p)
		if string(p[:n]) != want || errors.Is(err, errIncomplete) != (want == "") ||
			errors.Is(s.failure(), errIncomplete) != (want == "") {
			t.Errorf("at %d: %q, %v", pos, p[:n], err)
		}
		s.err = nil
	}
}

// watched is a stream that calls request before it sends one.
type watched struct {
	net.Conn
	request func()
}

func (w *watched) Write(p []byte) (int, error) {
	for q := bytes.TrimPrefix(p, []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); len(q) >= 9 &&
		q[0] == 0; {
		if q[3] == byte(http2.FrameHeaders) {
			w.request()
		}
		q = q[min(len(q), 9+int(q[1])<<8+int(q[2])):]
	}
	return w.Conn.Write(p)
}

// TestUploadBeginsAgainDuringRead loses the connection while the caller's reader is being read, and
// has it give more than is kept when the change is being sent again.
func TestUploadBeginsAgainDuringRead(t *testing.T) {
	wiretest.NoLeaks(t)
	sizes := []int{60_000, 60_000, 60_000, 60_000, 60_000, 20_000}
	content := numbered(320_000)
	for name, call := range map[string]func(*pair, io.Reader) error{
		"write": func(c *pair, r io.Reader) error {
			_, err := c.WriteFile(t.Context(), "f", r, env.WriteOptions{})
			return err
		},
		"copyin": func(c *pair, r io.Reader) error { return c.CopyIn(t.Context(), "d", r) },
	} {
		t.Run(name, func(t *testing.T) {
			var arrived atomic.Pointer[[]byte]
			take := func(r io.Reader) error {
				data, err := io.ReadAll(r)
				if err == nil {
					arrived.Store(&data)
				}
				return err
			}
			r, release := newPieces(content, 4, sizes...)
			defer release()
			var dials, requests int
			c := connected(t, &wiretest.Env{
				OnWriteFile: func(
					_ context.Context, _ string, r io.Reader, _ env.WriteOptions,
				) (env.Written, error) {
					return env.Written{}, take(r)
				},
				OnCopyIn: func(_ context.Context, _ string, r io.Reader) error { return take(r) },
			}, func(cfg *Config) {
				dial := cfg.Dial
				cfg.Dial = func(ctx context.Context) (io.ReadWriteCloser, error) {
					stream, err := dial(ctx)
					near, ok := stream.(net.Conn)
					if dials++; dials == 1 || !ok {
						return stream, err
					}
					return &watched{near, func() {
						if requests++; requests == 2 { // the first requests the outcome
							release()
							idle(t)
						}
					}}, nil
				}
			})
			go func() {
				<-r.waits
				c.lose()
			}()
			err := call(c, r)
			if got := arrived.Load(); err != nil || got == nil || !bytes.Equal(*got, content) {
				t.Errorf("error %v, or not the content that was sent", err)
			}
		})
	}
}

// TestForgottenChangeIsNotRepeated has a server that no longer has the outcomes of changes when the
// client requests them.
func TestForgottenChangeIsNotRepeated(t *testing.T) {
	wiretest.NoLeaks(t)
	for _, name := range []string{"remove", "write", "copyin"} {
		t.Run(name, func(t *testing.T) {
			var made atomic.Int32
			h := &hostile{session: "s", answer: func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/op/") {
					_, _ = w.Write(frame(wire.FrameEnd, `{"error":{"text":"forgotten","is":["unknown_outcome"]}}`))
					return
				}
				made.Add(1)
				panic(http.ErrAbortHandler)
			}}
			err := calls[name](t.Context(), impatient(t, Config{Dial: h.dial, Redial: time.Minute}))
			if !errors.Is(err, env.ErrUnknownOutcome) || made.Load() != 1 {
				t.Errorf("error %v, want ErrUnknownOutcome; sent %d times", err, made.Load())
			}
		})
	}
}

// TestChangeIsRepeatedUnderAnotherID: a change without an outcome is sent again under
// another id.
func TestChangeIsRepeatedUnderAnotherID(t *testing.T) {
	wiretest.NoLeaks(t)
	var mu sync.Mutex
	var requested []string
	h := &hostile{session: "s", answer: func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		id, known := strings.CutPrefix(r.URL.Path, "/op/")
		if known {
			requested = append(requested, id)
			_, _ = w.Write(frame(wire.FrameEnd, `{"value":{}}`))
			return
		}
		if len(requested) == 0 {
			panic(http.ErrAbortHandler)
		}
		if id := r.Header.Get(wire.ChangeHeader); id == requested[0] {
			t.Errorf("%s is sent again", id)
		}
		_, _ = w.Write(frame(wire.FrameEnd, `{}`))
	}}
	c := impatient(t, Config{Dial: h.dial, Redial: time.Minute})
	if err := c.Remove(t.Context(), "f", env.RemoveOptions{}); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(requested) != 1 {
		t.Errorf("requested the outcomes of %q", requested)
	}
}

// TestWriteCondition: a condition that is no digest is the error that a local environment gives,
// and is not sent.
func TestWriteCondition(t *testing.T) {
	wiretest.NoLeaks(t)
	var writes atomic.Int32
	c := connected(t, &wiretest.Env{
		OnWriteFile: func(_ context.Context, name string, _ io.Reader,
			opts env.WriteOptions,
		) (env.Written, error) {
			writes.Add(1)
			return env.Written{Size: int64(len(opts.IfSHA256))}, nil
		},
	}, nil)
	digest := sha256.Sum256(nil)
	good := strings.ToUpper(hex.EncodeToString(digest[:]))
	for name, condition := range map[string]string{
		"no hex": "zz", "short": "abcd", "odd": good[1:], "long": good +
			"00", "very long": strings.Repeat("ab", 1<<20),
	} {
		_, err := c.WriteFile(t.Context(), "f", strings.NewReader("x"),
			env.WriteOptions{IfSHA256: condition})
		var path *fs.PathError
		if !errors.Is(err, fs.ErrInvalid) || !errors.As(err, &path) ||
			err.Error() != fmt.Sprintf("write f: condition %q: invalid argument", condition) {
			t.Errorf("%s: %.200v", name, err)
		}
	}
	if n := writes.Load(); n != 0 {
		t.Errorf("%d were sent", n)
	}
	written, err := c.WriteFile(t.Context(), "f", strings.NewReader("x"),
		env.WriteOptions{IfSHA256: good})
	if err != nil || written.Size != 64 || len(c.streams) != 1 {
		t.Errorf("a good one: %+v, %v, over %d connections", written, err, len(c.streams))
	}
}

// TestLongestHead sends the longest possible head of a request, which a server accepts.
func TestLongestHead(t *testing.T) {
	wiretest.NoLeaks(t)
	name := strings.Repeat("\xff", maxName)
	c := connected(t, &wiretest.Env{
		OnWriteFile: func(
			_ context.Context, got string, _ io.Reader, opts env.WriteOptions,
		) (env.Written, error) {
			if got != name {
				return env.Written{}, errors.New("another name")
			}
			return env.Written{Size: int64(opts.Mode)}, nil
		},
	}, nil)
	opts := env.WriteOptions{Mode: 1<<32 - 1, MustNotExist: true, IfSHA256: strings.Repeat("ab",
		sha256.Size)}
	for range 2 { // also once the server's limits are known
		written, err := c.WriteFile(t.Context(), name, iotestReader{strings.NewReader("x")}, opts)
		if err != nil || written.Size != int64(opts.Mode) {
			t.Errorf("WriteFile: %+v, %.200q", written, fmt.Sprint(err))
		}
	}
	if len(c.streams) != 1 {
		t.Errorf("%d connections", len(c.streams))
	}
}

// iotestReader hides what else a reader can do.
type iotestReader struct{ io.Reader }

// TestChangeAnsweredByNonsense: a change that was sent may have happened, whatever the answer is.
func TestChangeAnsweredByNonsense(t *testing.T) {
	wiretest.NoLeaks(t)
	for name, answer := range map[string]http.HandlerFunc{
		"garbage": body([]byte("garbage garbage garbage")),
		"a status": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
		},
		"a value of another type": body(frame(wire.FrameEnd, `{"value":"x"}`)),
	} {
		for _, call := range []string{"write", "remove", "copyin"} {
			if call != "write" && strings.HasPrefix(name, "a value") {
				continue // it has none
			}
			t.Run(name+"/"+call, func(t *testing.T) {
				h := &hostile{session: "s", answer: answer}
				c := impatient(t, Config{Dial: h.dial, Redial: time.Minute})
				if err := calls[call](t.Context(), c); !errors.Is(err, env.ErrProtocol) || !errors.Is(err,
					env.ErrUnknownOutcome) {
					t.Errorf("error %v, want ErrProtocol and ErrUnknownOutcome", err)
				}
				if err := calls[call](t.Context(), c); !errors.Is(err, env.ErrProtocol) || errors.Is(err,
					env.ErrUnknownOutcome) {
					t.Errorf("the next one gives %v, want ErrProtocol only, since it was not sent", err)
				}
			})
		}
	}
}
