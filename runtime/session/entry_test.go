package session_test

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/plan"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// documented are the data of entries, by their type, and the objects in them, by their names on the
// page about sessions. The surroundings belong to another package.
var documented = map[string]any{
	session.TypeStarted:       session.Started{},
	session.TypeResumed:       session.Resumed{},
	session.TypeRunStarted:    session.RunStarted{},
	session.TypePrompt:        session.Prompt{},
	session.TypeModelRequest:  session.ModelRequest{},
	session.TypeRetry:         session.Retry{},
	session.TypeTurn:          session.Turn{},
	session.TypeToolStarted:   session.ToolStarted{},
	session.TypeToolResult:    session.ToolResult{},
	session.TypeFailure:       event.Failure{},
	session.TypeApprovalAsked: session.ApprovalAsked{},
	session.TypePruned:        session.Pruned{},
	session.TypeCompacted:     session.Compacted{},
	session.TypeSnapshot:      session.Snapshot{},
	session.TypeRolledBack:    session.RolledBack{},
	session.TypeCopied:        session.Copied{},
	session.TypeAgentStarted:  session.AgentStarted{},
	session.TypeMode:          session.Mode{},
	session.TypeTitle:         session.Title{},
	session.TypePlan:          plan.Plan{},
	session.TypeState:         session.State{},
	session.TypeRunEnded:      session.RunEnded{},
	session.TypeEnded:         session.Ended{},

	"limits":                 session.Limits{},
	"a turn":                 session.Turn{},
	"a part":                 llm.Part{},
	"a tool call":            llm.ToolCall{},
	"a result":               llm.ToolResult{},
	"usage, in tokens":       llm.Usage{},
	"one of models":          event.ModelUsage{},
	"spent":                  session.Spent{},
	"a change of a result":   event.FileChange{},
	"a change of a snapshot": session.FileChange{},
	"one of agents":          event.AgentResult{},
	"a failure":              event.Failure{},
	"a step":                 session.Transition{},
}

// fieldsOf returns the names of the fields of a struct in JSON.
func fieldsOf(typ reflect.Type) (names []string) {
	for f := range typ.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous {
			names = append(names, fieldsOf(f.Type)...)
		} else {
			names = append(names, name)
		}
	}
	return names
}

var (
	quoted   = regexp.MustCompile("`([a-z0-9_]+)`")
	aside    = regexp.MustCompile(`\([^)]*\)`)
	constant = regexp.MustCompile(`(?m)^\tType\w+ = "(\w+)"$`)
)

// TestPageListsEntries compares the tables of the page about sessions with the types of entries and
// their fields.
func TestPageListsEntries(t *testing.T) {
	page, err := os.ReadFile("../../docs/sessions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "\n| type | the entry | fields of `data` |\n")
	text, _, _ = strings.Cut(text, "\n## ")
	rows := map[string][]string{}
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) < 2 {
			continue
		}
		for _, m := range quoted.FindAllStringSubmatch(aside.ReplaceAllString(cells[len(cells)-1], ""),
			-1) {
			name := strings.Trim(cells[0], "`")
			rows[name] = append(rows[name], m[1])
		}
	}
	rows[session.TypeTurn] = rows["a turn"]
	rows[session.TypeResumed] = append(slices.Clone(rows[session.TypeStarted]),
		rows[session.TypeResumed]...)
	for name, data := range documented {
		want := fieldsOf(reflect.TypeOf(data))
		if !cmp.Equal(rows[name], want, cmpopts.SortSlices(strings.Compare)) {
			t.Errorf("docs/sessions.md gives %s the fields %q, not %q", name, rows[name], want)
		}
	}
	source, err := os.ReadFile("entry.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range constant.FindAllStringSubmatch(string(source), -1) {
		if rows[m[1]] == nil {
			t.Errorf("docs/sessions.md lacks the type %s", m[1])
		}
	}
}

// TestOtherEntries has records without entries that no session needs to go on: those of requests,
// and of types that are not known.
func TestOtherEntries(t *testing.T) {
	load := func(others bool) *session.Record {
		s := create(t)
		add := func(typ string, data any) {
			write(t, s, typ, data)
			if others {
				write(t, s, session.TypeModelRequest, session.ModelRequest{RunID: "r", ModelCall: 9},
					session.TypeRetry, session.Retry{RunID: "r"}, "new", json.RawMessage(`[]`))
			}
		}
		add(session.TypeStarted, started("s"))
		add(session.TypeRunStarted, session.RunStarted{RunID: "r"})
		add(session.TypeTurn, session.Turn{Kind: session.TurnUser})
		add(session.TypeTurn, answer("a", "b"))
		add(session.TypeToolStarted, session.ToolStarted{RunID: "r", ModelCall: 1, CallID: "a"})
		add(session.TypeToolResult, result("a"))
		r, err := session.Load(s.Dir())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	ignored := cmpopts.IgnoreFields(session.Record{}, "Dir", "Points")
	want, got := load(false), load(true)
	if diff := cmp.Diff(want, got, ignored, cmpopts.IgnoreUnexported(session.Record{})); diff != "" {
		t.Errorf("the record differs (-without +with):\n%s", diff)
	}
	if len(got.Points) != len(want.Points) {
		t.Errorf("the points are %+v, not %+v", got.Points, want.Points)
	}
}

// TestOldEnd reads the end of a run whose steps have no times.
func TestOldEnd(t *testing.T) {
	s := create(t)
	write(t, s, session.TypeStarted, started("s"), session.TypeRunStarted, session.RunStarted{},
		session.TypeRunEnded, json.RawMessage(
			`{"status":"completed","steps":[{"from":"idle","signal":"start","to":"preparing"}]}`))
	r, err := session.Load(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	want := []session.Transition{{
		Status: event.Status{From: "idle", Signal: "start", To: "preparing"},
	}}
	if got := r.Runs[0].Ended.Transitions; !cmp.Equal(got, want) {
		t.Errorf("the steps are %+v", got)
	}
}
