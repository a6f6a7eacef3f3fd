package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// resume opens the session in dir and goes on with it.
func resume(t *testing.T, cfg agent.Config, dir string) *agent.Session {
	t.Helper()
	store, record, err := session.Open(dir, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := newAgent(t, cfg).Resume(t.Context(), store, record, agent.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// cutJournal makes a session in a new directory whose journal has the first n lines, and a half of
// the next one: what is left of a killed program.
func cutJournal(t *testing.T, lines [][]byte, n int) (dir string) {
	t.Helper()
	data := bytes.Join(lines[:n], nil)
	if n < len(lines) {
		data = append(data, lines[n][:len(lines[n])/2]...)
	}
	return journalDir(t, data)
}

// journalDir makes a session in a new directory with that journal.
func journalDir(t *testing.T, data []byte) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "id1")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, session.JournalName), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func journalLines(t *testing.T, dir string) [][]byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, session.JournalName))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(bytes.SplitAfter(data, []byte("\n")), func(l []byte) bool {
		return len(l) == 0
	})
}

// TestResumeAfterEachEntry cuts the journal of a run after each entry, in the middle of the next,
// and goes on. The model makes the steps in order, and looks before it repeats one.
func TestResumeAfterEachEntry(t *testing.T) {
	const steps = 3
	done := map[string]int{} // changes outside of the session
	change := newTool("change", false, func(_ context.Context, c *tool.Call) (tool.Result, error) {
		var args struct{ Step string }
		if err := json.Unmarshal(c.Args, &args); err != nil {
			return tool.Result{}, err
		}
		done[args.Step]++
		return tool.Result{Text: "did " + args.Step}, nil
	})
	var looked callLog
	next := func(req llm.Request) answer {
		var results int
		for _, m := range req.Messages {
			for _, p := range m.Parts {
				if p.ToolResult == nil || p.ToolResult.Name != "change" {
					continue
				}
				if !strings.Contains(p.ToolResult.Text(), "changed nothing") {
					results++
				}
			}
		}
		if results >= steps {
			return answer{text: "done"}
		}
		n := fmt.Sprint(results)
		return calls(call("look"+n, "look", nil), call("c"+n, "change", object{"step": n}))
	}
	dir := t.TempDir()
	cfg := config(modelFunc(next), change, looked.tool("look", true))
	cfg.Store = session.OnDisk(dir)
	if _, err := newAgent(t, cfg).Run(t.Context(), agent.Input{Text: "make the steps"}); err != nil {
		t.Fatal(err)
	}
	id, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(id) != 1 {
		t.Fatalf("sessions %q, %v", id, err)
	}
	lines := journalLines(t, id[0])
	for n := 1; n <= len(lines); n++ {
		at := cutJournal(t, lines, n)
		record, err := session.Load(at)
		if err != nil {
			t.Fatalf("after %d entries: %v", n, err)
		}
		clear(done)
		for _, c := range finished(record) {
			done[c] = 1
		}
		cfg := config(modelFunc(next), change, looked.tool("look", true))
		ev := watch(&cfg)
		s := resume(t, cfg, at)
		if n < len(lines) && ev.count(event.KindWarning) != 1 {
			t.Errorf("after %d entries: no warning about the torn one", n)
		}
		if res := submit(t, s, "go on"); res.Status != agent.StatusCompleted {
			t.Errorf("after %d entries: %s, %v", n, res.Status, res.Err)
		}
		checkPairs(t, s.History())
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		for i := range steps {
			if got := done[fmt.Sprint(i)]; got != 1 {
				t.Errorf("after %d entries: step %d was made %d times", n, i, got)
			}
		}
		if again, err := session.Load(at); err != nil || !again.Closed || len(again.Calls) > 0 {
			t.Errorf("after %d entries: the resumed journal: %v", n, err)
		}
	}
}

// TestResumeDamaged cuts the journals of an ended and a killed run at every byte of their last
// three entries, and flips every bit of these. A cut loses the entry that it cuts and nothing else;
// a flipped bit is reported, and the journal stays as it is. Short tests leave out some.
func TestResumeDamaged(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 7
	}
	var n callLog
	m := &model{answers: []answer{calls(call("a", "look", nil), call("b", "change", nil))}}
	cfg := config(m, n.tool("look", true), n.tool("change", false))
	cfg.Store = session.OnDisk(t.TempDir())
	s := newSession(t, cfg)
	submit(t, s, "go")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	lines := journalLines(t, s.Dir())
	killed := 1 + slices.IndexFunc(lines, func(line []byte) bool {
		return bytes.Contains(line, []byte(`"tool_result"`)) && bytes.Contains(line, []byte(`"b"`))
	})
	for name, lines := range map[string][][]byte{"ended": lines, "killed": lines[:killed]} {
		t.Run(name+", cut", func(t *testing.T) {
			t.Parallel()
			for n := len(lines) - 3; n < len(lines); n++ {
				var want []session.Turn
				for cut := 0; cut < len(lines[n]); cut += step {
					at := journalDir(t, slices.Concat(bytes.Join(lines[:n], nil), lines[n][:cut]))
					resumed := resume(t, config(&model{}), at)
					got := resumed.History()
					if err := resumed.Close(); err != nil {
						t.Fatal(err)
					}
					if cut == 0 {
						want = got
						checkPairs(t, want)
					}
					if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(session.Turn{}, "Time")); diff != "" {
						t.Fatalf("entry %d, cut after %d bytes (-want +got):\n%s", n+1, cut, diff)
					}
					if r, err := session.Load(at); err != nil || len(r.Turns) != len(want) {
						t.Fatalf("entry %d, cut after %d bytes, and loaded again: %v", n+1, cut, err)
					}
				}
			}
		})
		t.Run(name+", flipped", func(t *testing.T) {
			t.Parallel()
			whole := bytes.Join(lines, nil)
			dir := journalDir(t, whole)
			for at := len(bytes.Join(lines[:len(lines)-3], nil)); at < len(whole); at++ {
				for bit := range 8 {
					if step > 1 && bit != at%8 {
						continue
					}
					bad := bytes.Clone(whole)
					bad[at] ^= 1 << bit
					journal := filepath.Join(dir, session.JournalName)
					if err := os.WriteFile(journal, bad, 0o600); err != nil {
						t.Fatal(err)
					}
					var corrupt *session.CorruptError
					if _, _, err := session.Open(dir, session.Options{}); !errors.As(err, &corrupt) {
						t.Fatalf("flipped bit %d of byte %d: %v", bit, at, err)
					}
					if left, err := os.ReadFile(journal); err != nil || !bytes.Equal(left, bad) {
						t.Fatalf("flipped bit %d of byte %d: the journal was changed, %v", bit, at, err)
					}
				}
			}
		})
	}
}

// finished returns the steps that a record knows to have started: as they were killed, it is not
// known whether they are done, and here they are.
func finished(r *session.Record) (steps []string) {
	add := func(arguments string) {
		var args struct{ Step string }
		if json.Unmarshal([]byte(arguments), &args) == nil && args.Step != "" {
			steps = append(steps, args.Step)
		}
	}
	open := map[string]bool{}
	for _, c := range r.Calls {
		open[c.ID] = true
		if c.Started {
			add(c.Arguments)
		}
	}
	for _, t := range r.Turns {
		for _, p := range t.Parts {
			if p.ToolCall != nil && !open[p.ToolCall.ID] {
				add(p.ToolCall.Arguments)
			}
		}
	}
	return steps
}

// TestResumeContinues compares a session that was closed and resumed with one that was not.
func TestResumeContinues(t *testing.T) {
	script := func() *model {
		return &model{answers: []answer{
			{text: "x", calls: []llm.ToolCall{call("a", "change", nil)}, usage: llm.Usage{Input: 70}},
			{text: "first", usage: llm.Usage{Input: 100, Output: 10}},
			{calls: []llm.ToolCall{call("a", "change", nil)}, usage: llm.Usage{Input: 120, Output: 5}},
			{text: "second", usage: llm.Usage{Input: 130}},
		}}
	}
	var n callLog
	setUp := func(m *model, dir string) agent.Config {
		cfg := config(m, n.tool("change", false))
		cfg.Store = session.OnDisk(dir)
		cfg.Profile.Price = &profile.Price{Input: 1, Output: 1}
		return cfg
	}
	whole := script()
	one := newSession(t, setUp(whole, t.TempDir()))
	submit(t, one, "go")
	want := submit(t, one, "more")

	parts, dir := script(), t.TempDir()
	cfg := setUp(parts, dir)
	cfg.Program = json.RawMessage(`{"flags":["--x=1"]}`)
	first := newSession(t, cfg)
	submit(t, first, "go")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, first.ID())
	record, err := session.Load(at)
	if err != nil || string(record.Started.Program) != `{"flags":["--x=1"]}` || !record.Closed ||
		record.Status() != "completed" || record.Runs[0].Task != "go" {
		t.Fatalf("the record is %+v, %v", record, err)
	}
	second := resume(t, setUp(parts, dir), at)
	got := submit(t, second, "more")
	if got.Turns != want.Turns || got.Status != want.Status ||
		!cmp.Equal(second.Models(), one.Models()) {
		t.Errorf("turns %d, status %s, models %+v; want %d, %s, %+v", got.Turns, got.Status,
			second.Models(), want.Turns, want.Status, one.Models())
	}
	for i := range 4 {
		a, b := whole.request(t, i), parts.request(t, i)
		b.SessionID = a.SessionID
		for j := range b.Messages {
			if j == 4 && i >= 2 { // the input that goes on
				text := b.Messages[j].Text()
				if !strings.HasPrefix(text, "more") || !strings.Contains(text, "goes on") {
					t.Errorf("the input is %q", text)
				}
				b.Messages[j] = a.Messages[j]
			}
		}
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		if string(x) != string(y) {
			t.Errorf("request %d differs:\n%s\n%s", i, x, y)
		}
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := session.Load(at)
	if err != nil {
		t.Fatal(err)
	}
	used, dollars := again.Total()
	uncut := mustLoad(t, one)
	if u, d := uncut.Total(); used != u || dollars == nil || *dollars != *d ||
		again.Spent != uncut.Spent {
		t.Errorf("the record has %+v, %v", again, err)
	}
}

func mustLoad(t *testing.T, s *agent.Session) *session.Record {
	t.Helper()
	r, err := session.Load(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestResumedLimits has a limit of turns that counts those before.
func TestResumedLimits(t *testing.T) {
	dir := t.TempDir()
	cfg := config(&model{})
	cfg.Store, cfg.Limits.MaxTurns = session.OnDisk(dir), 2
	s := newSession(t, cfg)
	submit(t, s, "one")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = resume(t, cfg, s.Dir())
	submit(t, s, "two")
	if res := submit(t, s, "three"); res.Status != agent.StatusLimit || res.Limit != "turns" {
		t.Errorf("the third request: %s %s", res.Status, res.Limit)
	}
}

// TestResumeKeepsTheMode changes to plan mode in one process, and plans in the next.
func TestResumeKeepsTheMode(t *testing.T) {
	dir := t.TempDir()
	cfg := config(&model{answers: []answer{calls(call("a", "plan_enter", nil))}})
	cfg.Store, cfg.Modes = session.OnDisk(dir), &agent.Modes{}
	s := newSession(t, cfg)
	submit(t, s, "plan it")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	m := &model{}
	cfg.Client = m
	submit(t, resume(t, cfg, s.Dir()), "go on")
	names := ""
	for _, spec := range m.request(t, 0).Tools {
		names += spec.Name + " "
	}
	if !strings.Contains(names, "plan_exit") {
		t.Errorf("the tools are %s", names)
	}
}

func TestAbortLeavesTheSessionOpen(t *testing.T) {
	started := make(chan struct{})
	block := newTool("block", false, func(ctx context.Context, _ *tool.Call) (tool.Result, error) {
		close(started)
		<-ctx.Done()
		return tool.Result{}, context.Cause(ctx)
	})
	m := &model{answers: []answer{calls(call("a", "block", nil)), {text: "I go on"}}}
	s := newSession(t, config(m, block))
	go func() {
		<-started
		s.Abort()
	}()
	res, _ := s.Submit(t.Context(), "go")
	if res.Status != agent.StatusAborted || s.State() != agent.SessionIdle {
		t.Fatalf("ended with %s, session %s", res.Status, s.State())
	}
	s.Abort() // without a run
	if res := submit(t, s, "go on"); res.Final != "I go on" {
		t.Errorf("the next run: %s, %q", res.Status, res.Final)
	}
	checkPairs(t, s.History())
}

// modelFunc is a model that answers each request on its own.
type modelFunc func(llm.Request) answer

func (f modelFunc) Stream(ctx context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return (&model{answers: []answer{f(req)}}).Stream(ctx, req)
}

// BenchmarkResume goes on with a session of 10,000 entries, whose rounds have a call with a result
// of 1 KiB each.
func BenchmarkResume(b *testing.B) {
	const rounds = 1665
	work := newTool("work", false, func(context.Context, *tool.Call) (tool.Result, error) {
		return tool.Result{Text: strings.Repeat("a line\n", 150)}, nil
	})
	m := &model{}
	for i := range rounds {
		m.answers = append(m.answers, calls(call(fmt.Sprint("c", i), "work", object{"step": i})))
	}
	dir := filepath.Join(b.TempDir(), "id1")
	cfg := config(m, work)
	cfg.Limits.MaxToolRounds, cfg.Profile.ContextWindow = rounds+1, 1<<30
	cfg.Store = func(string) (session.Store, error) { return session.Create(dir, session.Options{}) }
	a, err := agent.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	s, err := a.NewSession(b.Context(), agent.SessionOptions{})
	if err != nil {
		b.Fatal(err)
	}
	if res, err := s.Submit(b.Context(), "go"); res.Status != agent.StatusCompleted {
		b.Fatal(res.Status, err)
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	journal, err := os.ReadFile(filepath.Join(dir, session.JournalName))
	if err != nil {
		b.Fatal(err)
	}
	entries := bytes.Count(journal, []byte("\n"))
	cfg.Client = &model{}
	if a, err = agent.New(cfg); err != nil {
		b.Fatal(err)
	}
	m, s = nil, nil // the benchmark has the memory of a new program
	b.ResetTimer()
	for b.Loop() {
		store, record, err := session.Open(dir, session.Options{})
		if err != nil || len(record.Conversation) < 2*rounds+2 {
			b.Fatal(len(record.Conversation), err)
		}
		s, err := a.Resume(b.Context(), store, record, agent.SessionOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(entries), "entries")
}
