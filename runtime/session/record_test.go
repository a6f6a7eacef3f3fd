package session_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// write appends entries: a type and its data, in turn.
func write(t *testing.T, s *session.Disk, entries ...any) {
	t.Helper()
	for i := 0; i < len(entries); i += 2 {
		if err := s.Append(entries[i].(string), entries[i+1]); err != nil {
			t.Fatal(err)
		}
	}
}

func closeSession(t *testing.T, s *session.Disk) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string) (*session.Disk, *session.Record) {
	t.Helper()
	s, r, err := session.Open(dir, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s, r
}

func started(id string) session.Started { return session.Started{ID: id, Model: "m"} }

// answer is a turn with calls of a model that cost a dollar.
func answer(calls ...string) session.Turn {
	t := session.Turn{
		Kind: session.TurnAssistant, Usage: llm.Usage{Input: 10}, CostUSD: new(1.0), Model: "m-1",
	}
	for _, id := range calls {
		t.Parts = append(t.Parts, llm.Part{
			Kind: llm.PartToolCall, ToolCall: &llm.ToolCall{ID: id, Name: "x", Arguments: "{}"},
		})
	}
	return t
}

func result(id string) session.ToolResult {
	return session.ToolResult{Result: llm.ToolResult{CallID: id, Name: "x"}}
}

func TestOneWriter(t *testing.T) {
	s := create(t)
	appendAll(t, s, "one")
	if _, _, err := session.Open(s.Dir(), session.Options{}); !errors.Is(err, session.ErrInUse) {
		t.Errorf("a second writer: %v", err)
	}
	if err := session.Remove(s.Dir()); !errors.Is(err, session.ErrInUse) {
		t.Errorf("removed in use: %v", err)
	}
	if !session.InUse(s.Dir()) {
		t.Error("it is not in use")
	}
	closeSession(t, s)
	if session.InUse(s.Dir()) {
		t.Error("it is in use after Close")
	}
	again, _ := open(t, s.Dir())
	appendAll(t, again, "two")
	if texts, err := readAll(journalPath(s)); err != nil || !cmp.Equal(texts, []string{"one", "two"}) {
		t.Errorf("%q, %v", texts, err)
	}
	for e, err := range session.Read(journalPath(s)) {
		if err != nil || e.Seq == 2 && e.ID != "1.2" { // appendAll writes no TypeStarted
			t.Errorf("entry %d has the ID %q, %v", e.Seq, e.ID, err)
		}
	}
}

// TestFence opens a session twice, as where a file system keeps no locks: the first writer stops.
func TestFence(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the file of a lock cannot be removed")
	}
	s := create(t)
	appendAll(t, s, "one")
	if err := os.Remove(filepath.Join(s.Dir(), "lock")); err != nil {
		t.Fatal(err)
	}
	other, _ := open(t, s.Dir())
	appendAll(t, other, "two")
	for range 2 {
		if err := s.Append("note", "lost"); !errors.Is(err, session.ErrInUse) {
			t.Errorf("the first writer: %v", err)
		}
	}
	appendAll(t, other, "three")
	want := []string{"one", "two", "three"}
	if texts, err := readAll(journalPath(s)); err != nil || !cmp.Equal(texts, want) {
		t.Errorf("%q, %v", texts, err)
	}
}

func TestOpenTorn(t *testing.T) {
	s := create(t)
	write(t, s, session.TypeStarted, started("s"), session.TypeTurn, answer())
	closeSession(t, s)
	whole, err := os.ReadFile(journalPath(s))
	if err != nil {
		t.Fatal(err)
	}
	first := bytes.IndexByte(whole, '\n') + 1
	for cut := first + 1; cut < len(whole); cut++ {
		if err := os.WriteFile(journalPath(s), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		again, r := open(t, s.Dir())
		if r.Torn != int64(cut-first) || len(r.Turns) != 0 {
			t.Fatalf("cut at %d: torn %d, %d turns", cut, r.Torn, len(r.Turns))
		}
		write(t, again, session.TypeTurn, answer())
		closeSession(t, again)
		if r, err := session.Load(s.Dir()); err != nil || r.Torn != 0 || len(r.Turns) != 1 {
			t.Fatalf("cut at %d: %+v, %v", cut, r, err)
		}
	}
	if err := os.WriteFile(journalPath(s), whole[:first-1], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := session.Open(s.Dir(), session.Options{}); err == nil {
		t.Error("a journal without an entry was opened")
	}
	if err := session.Remove(s.Dir()); err != nil {
		t.Errorf("it cannot be removed: %v", err)
	}
}

// TestOpenCalls has an answer whose calls have, in turn, a result, a start and nothing.
func TestOpenCalls(t *testing.T) {
	s := create(t)
	write(t, s,
		session.TypeStarted, started("s"),
		session.TypeRunStarted, session.RunStarted{RunID: "r"},
		session.TypeTurn, answer("a", "b", "c"),
		session.TypeToolStarted, session.ToolStarted{RunID: "r", ModelCall: 1, Position: 1, CallID: "b"},
		session.TypeToolResult, result("a"),
	)
	r, err := session.Load(s.Dir())
	if err != nil || len(r.Turns) != 1 || len(r.Calls) != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	for i, want := range []struct{ started, result bool }{{false, true}, {true, false}, {}} {
		if c := r.Calls[i]; c.Started != want.started || (c.Result != nil) != want.result ||
			c.RunID != "r" || c.Position != i {
			t.Errorf("call %d: %+v", i, c)
		}
	}
	write(t, s, session.TypeToolResult, result("c"), session.TypeToolResult, result("b"),
		session.TypeTurn, session.Turn{Kind: session.TurnUser})
	r, err = session.Load(s.Dir())
	if err != nil || len(r.Calls) > 0 || len(r.Turns) != 3 || r.Turns[1].Results[1].CallID != "b" {
		t.Errorf("with all results: %+v, %v", r, err)
	}
	write(t, s, session.TypeTurn, answer("d"), session.TypeTurn, answer())
	if _, err := session.Load(s.Dir()); err == nil || !strings.Contains(err.Error(), "d before it") {
		t.Errorf("an answer without its results before another one: %v", err)
	}
}

func cost(r *session.Record) float64 {
	if _, dollars := r.Total(); dollars != nil {
		return *dollars
	}
	return -1
}

// TestUnfinishedRun counts what was used in a run without an end, with its sub-agents, after one
// with an end.
func TestUnfinishedRun(t *testing.T) {
	parent := filepath.Join(t.TempDir(), "s")
	s, err := session.Create(parent, session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	child, err := session.Create(parent+"-agent_7", session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	childStarted := started("s-agent_7")
	childStarted.Parent = "s"
	write(t, child, session.TypeStarted, childStarted,
		session.TypePrompt, session.Prompt{Model: "small"}, session.TypeTurn, answer())
	closeSession(t, child)
	write(t, s,
		session.TypeStarted, started("s"), session.TypePrompt, session.Prompt{Model: "m"},
		session.TypeRunStarted, session.RunStarted{RunID: "r"}, session.TypeTurn, answer(),
		session.TypeRunEnded, session.RunEnded{
			RunID: "r", Status: "completed", Spent: session.Spent{Turns: 3, Tokens: 30, USD: 3},
			Models: []event.ModelUsage{{Model: "m", Answers: 3, CostUSD: new(3.0)}},
		},
		session.TypeRunStarted, session.RunStarted{RunID: "r2"}, session.TypeTurn, answer(),
		session.TypeAgentStarted, session.AgentStarted{SessionID: "s-agent_7"},
		session.TypeAgentStarted, session.AgentStarted{SessionID: "s"}, // of no sub-agent
	)
	closeSession(t, s)
	for range 2 { // a second time after it was resumed
		r, err := session.Load(parent)
		if err != nil {
			t.Fatal(err)
		}
		if want := (session.Spent{Turns: 5, Tokens: 50, USD: 5}); r.Spent != want || cost(r) != 5 ||
			r.Agents != 7 || r.Status() != session.StatusInterrupted || len(r.Models) != 2 {
			t.Errorf("spent %+v, cost %v, %d agents, status %s, models %+v", r.Spent, cost(r), r.Agents,
				r.Status(), r.Models)
		}
		again, _ := open(t, parent)
		write(t, again, session.TypeResumed, session.Resumed{Started: started("s")})
		closeSession(t, again)
	}
	list, err := session.List(filepath.Dir(parent), func(_ string, err error) { t.Error(err) })
	if err != nil || len(list) != 1 || list[0].ID != "s" {
		t.Errorf("the list has %d sessions, %v", len(list), err)
	}
	if err := session.Remove(parent); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(parent)); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestOutputsStay opens an output that another process has stored, in a directory that was moved.
func TestOutputsStay(t *testing.T) {
	s := create(t)
	out, err := s.Spool().Create("call")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(out, "long"); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	r := result("call")
	r.OutputFile = out.Name()
	write(t, s, session.TypeStarted, started("s"), session.TypeTurn, answer("call"),
		session.TypeToolResult, r)
	closeSession(t, s)
	moved := filepath.Join(t.TempDir(), "moved")
	if err := os.Rename(s.Dir(), moved); err != nil {
		t.Fatal(err)
	}
	again, _ := open(t, moved)
	f, err := again.OpenOutput("call")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	if text, err := io.ReadAll(f); err != nil || string(text) != "long" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestMissingSession(t *testing.T) {
	if _, err := session.Load(filepath.Join(t.TempDir(), "x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load: %v", err)
	}
	if _, _, err := session.Open(filepath.Join(t.TempDir(), "x"), session.Options{}); !errors.Is(err,
		fs.ErrNotExist) {
		t.Errorf("Open: %v", err)
	}
	list, err := session.List(filepath.Join(t.TempDir(), "x"), nil)
	if err != nil || len(list) > 0 {
		t.Errorf("List: %v, %v", list, err)
	}
}

// FuzzLoad loads journals with valid checksums and any data.
func FuzzLoad(f *testing.F) {
	f.Add(session.TypeTurn,
		`{"kind":"assistant","parts":[{"kind":"tool_call","tool_call":{"id":"a"}}]}`,
		session.TypeToolResult, `{"result":{"call_id":"a"},"output_file":"../x"}`)
	f.Add(session.TypeRunStarted, `{}`, session.TypeRunEnded, `{"spent":{"turns":-1}}`)
	f.Add(session.TypeRunStarted, `{}`, session.TypeCompacted, `{"summary":"s"}`)
	f.Add(session.TypeRunStarted, `{}`, session.TypeTurn, `{"kind":"user"}`)
	f.Add(session.TypeAgentStarted, `{"session_id":"../s"}`, session.TypeResumed, `null`)
	f.Add(session.TypeSnapshot, `{"call_id":"","changes":[{"name":"\"\\xff\""}]}`,
		session.TypeRolledBack, `{"to":1}`)
	f.Fuzz(func(t *testing.T, typ1, data1, typ2, data2 string) {
		if !json.Valid([]byte(data1)) || !json.Valid([]byte(data2)) {
			return
		}
		s, err := session.Create(filepath.Join(t.TempDir(), "s"), session.Options{})
		if err != nil {
			t.Fatal(err)
		}
		write(t, s, session.TypeStarted, started("s"), typ1, json.RawMessage(data1), typ2,
			json.RawMessage(data2))
		closeSession(t, s)
		if again, r, err := session.Open(s.Dir(), session.Options{}); err == nil {
			r.Status()
			r.Total()
			closeSession(t, again)
		}
		if rec, err := session.LoadRecording(s.Dir()); err == nil {
			for _, x := range rec.Exchanges {
				if n := len(x.Request().Messages); x.Run >= len(rec.Runs) || !x.Summary && n > 2 {
					t.Errorf("%+v has %d messages", x, n)
				}
			}
		}
	})
}
