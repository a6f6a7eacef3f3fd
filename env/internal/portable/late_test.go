package portable_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/portable"
)

// wayTime is how long what a shell far away says is on its way, which is much longer than a shell takes to end.
const wayTime = 25 * time.Millisecond

// late is an output of a shell far away: what has not arrived when the shell is dead is lost.
type late struct {
	r    io.Reader
	dead <-chan struct{}
}

func (l late) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	select {
	case <-time.After(wayTime):
		return n, err
	case <-l.dead:
		return 0, io.EOF
	}
}

// remote has every shell lose what is on its way from it when it dies.
func remote(t testing.TB, k kind) func(*portable.Config) {
	command := k.command(t)
	return func(cfg *portable.Config) {
		cfg.Start = func(context.Context) (portable.Shell, error) {
			c := command()
			s, err := startProcess(c)
			if err != nil {
				return s, err
			}
			dead := make(chan struct{})
			go func() {
				_ = c.Wait() // a shell may end as it likes
				close(dead)
			}()
			s.Stdout, s.Stderr = late{s.Stdout, dead}, late{s.Stderr, dead}
			s.Close = func() error {
				_ = c.Process.Kill()
				<-dead
				return nil
			}
			return s, nil
		}
	}
}

// TestLastWords runs what takes a shell for itself over connections that lose what a shell said just before its death.
func TestLastWords(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		e := k.open(t, remote(t, k))
		for script, want := range map[string]int{"cat": 0, "cat; exit 3": 3, "exit 4": 4} {
			in, text := "one\ntwo\n", ""
			if strings.HasPrefix(script, "cat") {
				text = in
			}
			var out bytes.Buffer
			res, err := e.Exec(t.Context(), env.Command{Argv: []string{"sh", "-c", script}, Stdin: iotest.OneByteReader(strings.NewReader(in)), Stdout: &out})
			if err != nil || res.ExitCode != want || out.String() != text {
				t.Errorf("%s: %+v, error %v, output %q", script, res, err, out.String())
			}
		}

		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		if err := errors.Join(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "file", Mode: 0o644}), w.Close()); err != nil {
			t.Fatal(err)
		}
		if err := e.CopyIn(t.Context(), "in", &archive); err != nil {
			t.Errorf("CopyIn: %v", err)
		}

		// A part of a file that cannot be written.
		content := io.MultiReader(strings.NewReader(strings.Repeat("1", 1<<20)), readerFunc(func(p []byte) (int, error) {
			if err := e.Remove(t.Context(), "in", env.RemoveOptions{Recursive: true}); err != nil {
				t.Error(err)
			}
			return copy(p, "2"), io.EOF
		}))
		if _, err := e.WriteFile(t.Context(), "in/large", content, env.WriteOptions{}); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("WriteFile to a folder that goes: error %v, want what the shell says", err)
		}
	})
}

// TestOutputCut loses the output of a command that is known to have exited: a part of it must not look like all.
func TestOutputCut(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		var armed atomic.Bool
		e := k.open(t, func(cfg *portable.Config) {
			start := cfg.Start
			cfg.Start = func(ctx context.Context) (portable.Shell, error) {
				s, err := start(ctx)
				if err == nil {
					s.Stdout, s.Stderr = cutOff(&armed, s.Stdout, s.Stderr)
				}
				return s, err
			}
		})
		output(t, e, "true") // there is an idle shell now
		armed.Store(true)
		var out bytes.Buffer
		res, err := e.Exec(t.Context(), env.Command{Argv: []string{"echo", "out"}, Stdout: &out})
		if !errors.Is(err, env.ErrUnknownOutcome) || res.ExitCode == 0 {
			t.Errorf("%+v, error %v, output %q; want ErrUnknownOutcome", res, err, out.String())
		}
	})
}

// cutOff returns outputs of a shell, the first of which ends, once armed, when the exit of a command has been noted.
func cutOff(armed *atomic.Bool, stdout, stderr io.Reader) (cut, lines io.Reader) {
	exited := make(chan struct{})
	noted := sync.OnceFunc(func() { close(exited) })
	reader, last := bufio.NewReader(stderr), ""
	lines = readerFunc(func(p []byte) (int, error) {
		if armed.Load() && strings.Contains(last, " x ") {
			noted() // this is the call after
		}
		var err error
		last, err = reader.ReadString('\n')
		return copy(p, last), err
	})
	cut = readerFunc(func(p []byte) (int, error) {
		n, err := stdout.Read(p)
		if armed.Load() {
			<-exited
			armed.Store(false)
			return 0, io.EOF
		}
		return n, err
	})
	return cut, lines
}

// TestEndsAtLast has contexts end when all has been said: that must not be felt by what comes next.
func TestEndsAtLast(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		var now atomic.Pointer[context.CancelFunc]
		e := k.open(t, func(cfg *portable.Config) {
			start := cfg.Start
			cfg.Start = func(ctx context.Context) (portable.Shell, error) {
				s, err := start(ctx)
				if err == nil {
					r := s.Stderr
					s.Stderr = readerFunc(func(p []byte) (int, error) {
						n, err := r.Read(p)
						if cancel := now.Swap(nil); cancel != nil && n > 0 {
							time.Sleep(time.Millisecond) // stdout is there by now
							(*cancel)()
						}
						return n, err
					})
				}
				return s, err
			}
		})
		if _, err := e.WriteFile(t.Context(), "file", strings.NewReader("text"), env.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
		for what, call := range map[string]func(ctx context.Context) error{
			"Stat": func(ctx context.Context) error { _, err := e.Stat(ctx, "file"); return err },
			"Open": func(ctx context.Context) error { _, err := env.ReadFile(ctx, e, "file", 0); return err },
		} {
			for range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				now.Store(&cancel)
				if err := call(ctx); err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", what, err)
				}
				cancel()
				now.Store(nil)
				if err := call(t.Context()); err != nil {
					t.Fatalf("%s after one whose context ended: %v", what, err)
				}
			}
		}
	})
}
