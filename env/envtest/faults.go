package envtest

import (
	"bytes"
	"context"
	"fmt"
	"io"
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

// Survives calls a fault so many times in the middle of a command, which prints and reads before
// and after each. The command must run once, and lose nothing.
func Survives(t *testing.T, e env.Environment, times int, fault func()) {
	t.Helper()
	lines := 100_000 / times
	in, typed := io.Pipe()
	defer in.Close() //nolint:errcheck // never fails
	asked, done := make(chan struct{}, 1), make(chan Outcome, 1)
	var out, want bytes.Buffer
	go func() {
		res, err := e.Exec(t.Context(), env.Command{
			Argv: []string{"/bin/sh", "-c", fmt.Sprintf("echo once >>count; i=0\n"+
				"while [ $i -lt %d ]; do echo ask; read x; echo \"$x\"; i=$((i+1))\n"+
				"j=0; while [ $j -lt %d ]; do echo line $j; j=$((j+1)); done; done; exit 7", times, lines)},
			Stdin: in, Stdout: io.MultiWriter(&out, &seeker{text: "ask\n", found: asked}),
		})
		done <- Outcome{res, err}
	}()
	late := time.NewTimer(0)
	for i := range times {
		late.Reset(faultTime)
		select {
		case <-asked:
		case o := <-done:
			t.Fatalf("the command ends before fault %d: %+v", i, o)
		case <-late.C:
			t.Fatalf("the command does not come to fault %d", i)
		}
		fault()
		if _, err := fmt.Fprintln(typed, "typed", i); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&want, "ask\ntyped %d\n", i)
		for j := range lines {
			fmt.Fprintln(&want, "line", j)
		}
	}
	late.Reset(faultTime)
	select {
	case o := <-done:
		if o.Err != nil || o.ExitCode != 7 {
			t.Fatalf("%+v", o)
		}
	case <-late.C:
		t.Fatal("the command does not end")
	}
	if !bytes.Equal(want.Bytes(), out.Bytes()) {
		t.Errorf("%d bytes arrived, want %d", out.Len(), want.Len())
	}
	data, err := env.ReadFile(t.Context(), e, "count", 100)
	if err != nil || string(data) != "once\n" {
		t.Errorf("it ran %q, %v", data, err)
	}
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
