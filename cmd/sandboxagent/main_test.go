package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sandboxagent/sandboxagent/env/sandboxd"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/llm/replay"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// beVar makes the test binary be the program of that name in mainPrograms.
const beVar = "SANDBOXAGENT_TEST_BE"

// patienceVar sets the time that an environment has to end after the timeout of a run.
const patienceVar = "SANDBOXAGENT_TEST_PATIENCE"

// mainPrograms are programs that tests run as separate processes.
func mainPrograms() map[string]func() {
	be := func(change func(*program)) func() {
		return func() {
			p := program{std: newStreams(os.Stdin, os.Stdout, os.Stderr)}
			change(&p)
			os.Exit(p.run(context.Background(), os.Args))
		}
	}
	return map[string]func(){
		"sandboxagent": be(func(p *program) {
			// 0 without the variable, as for users
			p.patience, _ = time.ParseDuration(os.Getenv(patienceVar))
		}),
		"sandboxagent-toolpanic": be(func(p *program) { p.tools = []tool.Tool{explodingTool()} }),
		"sandboxagent-pacedmodel": be(func(p *program) {
			p.wrapClient = func(llm.Client) llm.Client { return pacedClient{} }
		}),
		"sandboxagent-killed":   be(func(p *program) { p.wrapStore = killAt(os.Getenv(killVar)) }),
		"sandboxagent-daylater": be(func(p *program) { p.clock = dayLater{llm.SystemClock()} }),
		"sandboxagent-modelpanic": be(func(p *program) {
			p.wrapClient = func(llm.Client) llm.Client { return explodingClient{} }
		}),
	}
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "__sandboxd" { // as sandboxd.Self starts it
		// like sandboxd.Main, but at once: os.Exit waits for a second with the race detector
		syscall.Exit(sandboxd.Run(os.Args[2:]))
	}
	if isImageHelper(os.Args) {
		syscall.Exit(sandboxd.Run(os.Args[1:]))
	}
	if isJanitor(os.Args) {
		os.Exit(janitor(os.Stdin, os.Args[2:]))
	}
	programs := mainPrograms()
	if be := programs[os.Getenv(beVar)]; be != nil {
		_ = os.Unsetenv(beVar)
		be()
	}
	testscript.Main(m, programs)
}

// killVar makes the program kill itself: before its n-th entry of the journal with "before n",
// after it with "after n". With "ended" it does so instead of its second snapshot, after the end of
// the run.
const killVar = "SANDBOXAGENT_TEST_KILL"

func killAt(point string) func(session.Store) session.Store {
	when, n, _ := strings.Cut(point, " ")
	at, _ := strconv.Atoi(n) // 0 kills never
	var count atomic.Int64
	if point == "ended" {
		ended := make(chan struct{})
		return func(s session.Store) session.Store { return &endingStore{s, &count, ended} }
	}
	return func(s session.Store) session.Store {
		return &killingStore{Store: s, count: &count, at: int64(at), before: when == "before"}
	}
}

// endingStore kills the program instead of its second snapshot, after the end of the run.
type endingStore struct {
	session.Store

	snapshots *atomic.Int64
	ended     chan struct{}
}

func (s *endingStore) Append(typ string, data any) error {
	if typ == session.TypeSnapshot && s.snapshots.Add(1) == 2 {
		<-s.ended
		kill()
	}
	err := s.Store.Append(typ, data)
	if typ == session.TypeRunEnded {
		close(s.ended)
	}
	return err
}

// killingStore kills the program.
type killingStore struct {
	session.Store

	count  *atomic.Int64
	at     int64
	before bool
}

func (s *killingStore) Append(typ string, data any) error {
	n := s.count.Add(1)
	if n == s.at && s.before {
		kill()
	}
	err := s.Store.Append(typ, data)
	if n == s.at {
		kill()
	}
	return err
}

func kill() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}

// dayLater is a clock that is a day ahead.
type dayLater struct{ llm.Clock }

func (c dayLater) Now() time.Time { return c.Clock.Now().Add(24 * time.Hour) }

func explodingTool() tool.Tool {
	return tool.Tool{
		ToolSpec: llm.ToolSpec{
			Name: "explode", Description: "Panics.",
			Schema: []byte(`{"type":"object"}`),
		},
		Run: func(context.Context, *tool.Call) (tool.Result, error) { panic("the tool exploded") },
	}
}

// explodingClient panics in the loop.
type explodingClient struct{}

func (explodingClient) Stream(context.Context, llm.Request) iter.Seq2[llm.Delta, error] {
	panic("the client exploded")
}

// pacedClient is a model that answers in two pieces, with a pause between until the file go-on
// exists.
type pacedClient struct{}

const firstPiece, lastPiece = "The first part of the answer.\n", "And the \x1b]0;evil\arest."

func (pacedClient) Stream(ctx context.Context, _ llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		if !yield(llm.Delta{Kind: llm.DeltaText, Text: firstPiece}, nil) {
			return
		}
		for {
			if _, err := os.Stat("go-on"); err == nil {
				break
			}
			select {
			case <-ctx.Done():
				yield(llm.Delta{}, &llm.Error{Kind: llm.KindNetwork, Message: ctx.Err().Error()})
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
		_ = yield(llm.Delta{Kind: llm.DeltaText, Text: lastPiece}, nil) &&
			yield(llm.Delta{Kind: llm.DeltaDone, Done: &llm.Done{Finish: llm.FinishStop}}, nil)
	}
}

// sandboxes reports whether this machine has the strongest sandbox, which causes no note.
func sandboxes() bool {
	_, err := exec.LookPath("bwrap")
	return err == nil && runtime.GOOS == "linux"
}

func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "script"),
		Setup: func(e *testscript.Env) error {
			home := e.WorkDir + "-home" // a sandbox is not to be in it
			e.Setenv("HOME", home)
			e.Defer(func() { _ = os.RemoveAll(home) }) // the package testscript removes WorkDir alone
			if !sandboxes() {
				e.Setenv("SANDBOXAGENT_SANDBOX", "off")
			}
			e.Setenv("SANDBOXAGENT_STATE_DIR", filepath.Join(e.WorkDir, ".state"))
			// or the demonstration compiles the standard library
			if cache, err := os.UserCacheDir(); err == nil {
				e.Setenv("GOCACHE", cmp.Or(os.Getenv("GOCACHE"), filepath.Join(cache, "go-build")))
			}
			return os.Mkdir(home, 0o700)
		},
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Getuid() == 0, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":     exits,
			"serve":     serve,
			"bigfile":   bigFile,
			"lastline":  lastLine,
			"before":    before,
			"nocontrol": noControl,
		},
	})
}

// exits runs a command and checks its exit code: exits CODE COMMAND...
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s: exit code %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// serve starts a model server and sets URL, ROOT, which lacks the /v1 of URL, and KEY: serve SCRIPT
func serve(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serve SCRIPT")
	}
	script, err := replay.ParseScript([]byte(ts.ReadFile(args[0])), args[0])
	ts.Check(err)
	brain, err := llmtest.Play(script)
	ts.Check(err)
	server, err := llmtest.Start(brain)
	ts.Check(err)
	ts.Defer(func() {
		server.Close()
		if v := server.TakeViolations(); len(v) > 0 {
			ts.Logf("the server saw violations: %s", strings.Join(v, "; "))
		}
	})
	ts.Setenv("URL", server.URL())
	ts.Setenv("ROOT", server.Root())
	ts.Setenv("KEY", server.Key())
}

// bigFile makes arguments of write_file with a long content: bigfile FILE BYTES
func bigFile(ts *testscript.TestScript, _ bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	text := `{"file_path":"big.txt","content":"` + strings.Repeat("x", n) + `"}`
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

// lastLine checks that the last line of a file contains all of the texts: lastline FILE TEXT...
func lastLine(ts *testscript.TestScript, _ bool, args []string) {
	lines := strings.Split(strings.TrimSuffix(ts.ReadFile(args[0]), "\n"), "\n")
	last := lines[len(lines)-1]
	for _, text := range args[1:] {
		if !strings.Contains(last, text) {
			ts.Fatalf("the last line lacks %q: %s", text, last)
		}
	}
}

// before checks that the first text comes before the second in a file: before FILE FIRST SECOND
func before(ts *testscript.TestScript, _ bool, args []string) {
	text := ts.ReadFile(args[0])
	first, second := strings.Index(text, args[1]), strings.Index(text, args[2])
	if first < 0 || second < first {
		ts.Fatalf("%q is not before %q in:\n%s", args[1], args[2], text)
	}
}

// noControl checks that a file has no control characters but for line breaks and tabs: nocontrol
// FILE
func noControl(ts *testscript.TestScript, _ bool, args []string) {
	bad := func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 }
	if i := slices.IndexFunc([]rune(ts.ReadFile(args[0])), bad); i >= 0 {
		ts.Fatalf("%s has a control character at %d", args[0], i)
	}
}
