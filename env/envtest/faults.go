package envtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

// faultTime bounds what follows a fault.
const faultTime = 2 * time.Minute

// An Outcome is the result of a command, or the error.
type Outcome struct {
	env.Result
	Err error
}

// Sleeping starts a command that sleeps, as user if that is not empty, and waits until it runs. It
// is for a fault that ends the environment.
func Sleeping(t *testing.T, e env.Environment, user string) <-chan Outcome {
	t.Helper()
	started, done := make(chan struct{}, 1), make(chan Outcome, 1)
	go func() {
		res, err := e.Exec(context.WithoutCancel(t.Context()), env.Command{
			Argv: []string{"/bin/sh", "-c", "echo now; exec sleep 1000"}, User: user,
			Stdout: &seeker{text: "now\n", found: started},
		})
		done <- Outcome{res, err}
	}()
	select {
	case <-started:
	case o := <-done:
		t.Fatalf("the command ends: %+v", o)
	case <-time.After(faultTime):
		t.Fatal("the command does not start")
	}
	return done
}

// Survives calls a fault so many times during a command, which reads and prints in turns. Each
// fault comes after a random part of a turn's output. The command must run once, and lose nothing.
func Survives(t *testing.T, e env.Environment, times int, fault func()) {
	t.Helper()
	lines := 100_000 / times
	in, typed := io.Pipe()
	defer in.Close() //nolint:errcheck // never fails
	done := make(chan Outcome, 1)
	var out meter
	go func() {
		res, err := e.Exec(t.Context(), env.Command{
			Argv: []string{"/bin/sh", "-c", fmt.Sprintf("echo once >>count; i=0\n"+
				"while [ $i -lt %d ]; do echo ask; read x; echo \"$x\"; i=$((i+1))\n"+
				"j=0; while [ $j -lt %d ]; do echo line $j; j=$((j+1)); done; done\n"+
				"read x; exit 7", times, lines)},
			Stdin: in, Stdout: &out,
		})
		done <- Outcome{res, err}
		_ = in.Close() // no more input is typed
	}()
	await := func(size int) {
		select {
		case <-out.reaches(size):
		case o := <-done:
			t.Fatalf("the command ends early: %+v, with %d bytes", o, out.size())
		case <-time.After(faultTime):
			t.Fatalf("the output does not come to %d bytes, but to %d", size, out.size())
		}
	}
	var want bytes.Buffer
	for i := range times {
		fmt.Fprintln(&want, "ask")
		await(want.Len())
		begin := want.Len()
		fmt.Fprintln(&want, "typed", i)
		for j := range lines {
			fmt.Fprintln(&want, "line", j)
		}
		if _, err := fmt.Fprintln(typed, "typed", i); err != nil {
			t.Fatal(err)
		}
		await(begin + rand.IntN(want.Len()-begin))
		fault()
	}
	if _, err := fmt.Fprintln(typed); err != nil {
		t.Fatal(err)
	}
	select {
	case o := <-done:
		if o.Err != nil || o.ExitCode != 7 {
			t.Fatalf("%+v", o)
		}
	case <-time.After(faultTime):
		t.Fatal("the command does not end")
	}
	if !bytes.Equal(want.Bytes(), out.data) {
		t.Errorf("%d bytes arrived, want %d", len(out.data), want.Len())
	}
	data, err := env.ReadFile(t.Context(), e, "count", 100)
	if err != nil || string(data) != "once\n" {
		t.Errorf("it ran %q, %v", data, err)
	}
}

// meter keeps the bytes written to it, and signals when they reach a size.
type meter struct {
	mu   sync.Mutex
	data []byte
	want int
	hit  chan struct{}
}

// reaches returns a channel that is closed when size bytes have been written. It is for one waiter.
func (m *meter) reaches(size int) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	hit := make(chan struct{})
	m.want, m.hit = size, hit
	m.check()
	return hit
}

func (m *meter) check() {
	if m.hit != nil && len(m.data) >= m.want {
		close(m.hit)
		m.hit = nil
	}
}

func (m *meter) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.data)
}

// Write implements io.Writer.
func (m *meter) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.data = append(m.data, p...)
	m.check()
	return len(p), nil
}

// seeker signals when a text has been written.
type seeker struct {
	text  string
	found chan<- struct{}
	seen  []byte
}

// Write implements io.Writer.
func (s *seeker) Write(p []byte) (int, error) {
	if s.seen = append(s.seen, p...); bytes.Contains(s.seen, []byte(s.text)) {
		s.seen = nil
		select {
		case s.found <- struct{}{}:
		default:
		}
	}
	s.seen = s.seen[max(0, len(s.seen)-len(s.text)):]
	return len(p), nil
}
