package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/wire"
)

// script is a stream whose other end says what it has to say, and then ends. It takes whatever it
// is got.
type script struct {
	sent   io.Reader
	closed chan struct{}
	once   sync.Once
}

func (s *script) Read(p []byte) (int, error) {
	select {
	case <-s.closed:
		return 0, net.ErrClosed
	default:
		return s.sent.Read(p)
	}
}

func (s *script) Write(p []byte) (int, error) {
	select {
	case <-s.closed:
		return 0, net.ErrClosed
	default:
		return len(p), nil
	}
}

func (s *script) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// FuzzHostileServer has a server send any bytes, which must not hang the client.
func FuzzHostileServer(f *testing.F) {
	settings := "\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x04\x01\x00\x00\x00\x00"
	headers := "\x00\x00\x01\x01\x04\x00\x00\x00\x01\x88" // status 200
	data := func(b string, flags byte) string {
		return string([]byte{0, 0, byte(len(b)), 0, flags, 0, 0, 0, 1}) + b
	}
	result := string(frame(wire.FrameResult, `{"exit_code":3}`))
	for _, sent := range []string{
		"", "\n", "{}\n", string(goodWelcome("s")), string(goodWelcome("s")) + settings,
		string(goodWelcome("s")) + settings + headers,
		string(goodWelcome("s")) + settings + headers + data(result, 1),
		string(goodWelcome("s")) + settings + headers + data(result, 0),
		string(goodWelcome("s")) + settings + headers + data(result[:7], 1),
		string(goodWelcome("s")) + settings + "\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08",
		string(goodWelcome("s")) + settings +
			"\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01",
		`{"version":5,"error":{"text":"no","is":["gone"]}}` + "\n",
	} {
		f.Add([]byte(sent))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		s := &script{sent: bytes.NewReader(sent), closed: make(chan struct{})}
		c, err := Open(ctx, Config{Dial: func(context.Context) (io.ReadWriteCloser, error) {
			return s,
				nil
		}})
		if err != nil {
			if ctx.Err() != nil {
				t.Fatalf("Open hangs: %v", err)
			}
			return
		}
		c.limits = limits{response: time.Second, close: time.Second, entries: 1000, listing: 1 << 20}
		defer func() { _ = c.Close() }() // its error does not matter
		var out bytes.Buffer
		_, err = c.Exec(ctx, env.Command{Argv: []string{"x"}, Stdout: &out})
		if out.Len() > len(sent) {
			t.Errorf("%d bytes of output from %d bytes", out.Len(), len(sent))
		}
		if err == nil {
			return // a fuzzer can send the bytes of a good server
		}
		if ctx.Err() != nil {
			t.Fatalf("Exec hangs: %v", err)
		}
	})
}

// FuzzHostileAnswer has a server answer each kind of call with anything.
func FuzzHostileAnswer(f *testing.F) {
	names := make([]string, 0, len(calls))
	for name := range calls {
		names = append(names, name)
	}
	slices.Sort(names)
	end := frame(wire.FrameEnd, "{}")
	for i := range names {
		for _, answer := range [][]byte{
			nil, end,
			frame(wire.FrameEnd, `{"value":{"name":"f","size":1,"mode":420,"s":1,"n":1}}`),
			frame(wire.FrameEnd, `{"error":{"type":"path","op":"open","path":"f",`+
				`"inner":{"text":"x","is":["not_exist"]}}}`),
			frame(wire.FrameEnd, `{"value":{"known":true,"outcome":{"value":{"Size":1}}}}`),
			join(frame(wire.FrameRecords, `[{"name":"f","mode":420,"line":1,"text":{"base64":"/w=="}}]`),
				frame(wire.FrameData, "data"), end),
			join(frame(wire.FrameStdout, "out"), frame(wire.FrameStderr, "err"), frame(wire.FrameResult,
				`{"exit_code":1,"stdout":3,"stderr":3}`)),
			frame(wire.FrameResult, `{"error":{"type":"start","argv":["x"],`+
				`"inner":{"text":"x"}},"cancelled":true}`),
			frame(wire.FrameEnd, `{"value":{"taken":5,"closed":true}}`),
		} {
			f.Add(byte(i), answer)
		}
	}
	f.Fuzz(func(t *testing.T, which byte, answer []byte) {
		name := names[int(which)%len(names)]
		h := &hostile{session: "s", answer: func(w http.ResponseWriter, _ *http.Request) {
			_,
				_ = w.Write(answer)
		}}
		c := impatient(t, Config{Dial: h.dial})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		err := calls[name](ctx, c)
		if ctx.Err() != nil {
			t.Fatalf("%s hangs: %v", name, err)
		}
		if errors.Is(err, errLost) {
			t.Errorf("%s gives an error of this package: %v", name, err)
		}
	})
}
