package agent

import (
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

func TestTransitionsAreComplete(t *testing.T) {
	final := []State{StateCompleted, StateFailed, StateAborted, StateTimedOut}
	reached := map[State]bool{StateIdle: true}
	for from, steps := range transitions {
		if slices.Contains(final, from) {
			t.Errorf("the final state %s has steps", from)
		}
		for signal, to := range steps {
			reached[to] = true
			if _, ok := transitions[to]; !ok && !slices.Contains(final, to) {
				t.Errorf("%s on %s leads to %s, which leads nowhere", from, signal, to)
			}
		}
		if from == StateIdle {
			continue
		}
		for _, must := range []Signal{SignalAbort, SignalDeadline, SignalError} {
			if _, ok := steps[must]; !ok {
				t.Errorf("%s has no step for %s", from, must)
			}
		}
	}
	for _, s := range append(final, StatePreparing, StatePlanning, StateModelRunning,
		StateToolRunning, StateReflecting, StateReplanning, StateReporting, StateAwaitingHuman) {
		if !reached[s] {
			t.Errorf("nothing leads to %s", s)
		}
	}
}

// TestStatesPage compares the table of states in the documentation with the state machine.
func TestStatesPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/states.md")
	if err != nil {
		t.Fatal(err)
	}
	table, _, _ := strings.Cut(string(page), "\n## ")
	states := regexp.MustCompile("`([a-z_]+)`|\\bitself\\b")
	got := make(map[State][]State)
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 {
			continue
		}
		for _, from := range states.FindAllStringSubmatch(cells[1], -1) {
			for _, to := range states.FindAllStringSubmatch(cells[3], -1) {
				name := to[1]
				if name == "" {
					name = from[1]
				}
				got[State(from[1])] = append(got[State(from[1])], State(name))
			}
		}
	}
	want := make(map[State][]State)
	for from, steps := range transitions {
		for _, to := range steps {
			if to != StateAborted && to != StateTimedOut { // which have a sentence of their own
				want[from] = append(want[from], to)
			}
		}
	}
	for _, list := range []map[State][]State{got, want} {
		for from := range list {
			slices.Sort(list[from])
			list[from] = slices.Compact(list[from])
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the page has other steps (-machine +page):\n%s", diff)
	}
}

func TestCanTransition(t *testing.T) {
	for from, want := range map[State]map[State]bool{
		StateIdle:          {StatePreparing: true, StateModelRunning: false},
		StateToolRunning:   {StateModelRunning: true, StatePreparing: false},
		StateReflecting:    {StateReplanning: true, StatePlanning: false},
		StateAwaitingHuman: {StateToolRunning: true, StateModelRunning: true, StateIdle: false},
		StateCompleted:     {StateIdle: false, StateFailed: false},
		"unknown":          {StateIdle: false},
	} {
		for to, can := range want {
			if CanTransition(from, to) != can {
				t.Errorf("a step from %s to %s: %t", from, to, !can)
			}
		}
	}
}

func TestUndefinedStepIsAnError(t *testing.T) {
	m := machine{state: StateCompleted}
	if _, err := m.signal(SignalStart); err == nil {
		t.Error("a final state accepted a signal")
	}
	if m.state != StateCompleted || len(m.transitions) != 0 {
		t.Error("a refused signal had an effect")
	}
}

func TestLoopDetector(t *testing.T) {
	a := llm.ToolCall{Name: "shell", Arguments: `{"command":"go test","n":1}`}
	sameAsA := llm.ToolCall{Name: "shell", Arguments: `{ "n": 1, "command": "go test" }`}
	b := llm.ToolCall{Name: "read_file", Arguments: `{"file_path":"x"}`}
	c := llm.ToolCall{Name: "grep", Arguments: `{"pattern":"x"}`}
	repeat := func(n int, pattern ...llm.ToolCall) (out []llm.ToolCall) {
		for i := range n {
			out = append(out, pattern[i%len(pattern)])
		}
		return out
	}
	tests := []struct {
		name  string
		calls []llm.ToolCall
		want  int // the number of the call at which it warns first; 0 for never
	}{
		{"the same call ten times", repeat(10, a), 10},
		{"order of keys and spaces do not count", repeat(10, a, sameAsA), 10},
		{"nine times", repeat(9, a), 0},
		{"two in turn", repeat(10, a, b), 10},
		{"three in turn", repeat(10, a, b, c), 10},
		{"four in turn", repeat(40, a, b, c, llm.ToolCall{Name: "glob"}), 0},
		// A pattern of three compares the last nine of ten calls, so that the first may differ.
		{"something new before", append([]llm.ToolCall{c}, repeat(10, a)...), 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := loopDetector{window: 10}
			got := 0
			for i, call := range tt.calls {
				d.add(call)
				if d.looping() && got == 0 {
					got = i + 1
				}
			}
			if got != tt.want {
				t.Errorf("warned at call %d, want %d", got, tt.want)
			}
		})
	}
	d := loopDetector{window: 10}
	warnings := 0
	for range 40 {
		d.add(a)
		if d.looping() {
			warnings++
		}
	}
	if warnings != 4 {
		t.Errorf("%d warnings in forty calls, want one each time the window is full", warnings)
	}
}

func TestMergeChanges(t *testing.T) {
	created, modified, deleted := event.FileCreated, event.FileModified, event.FileDeleted
	tests := []struct {
		name  string
		kinds []event.ChangeKind
		want  []event.ChangeKind
	}{
		{"modified twice", []event.ChangeKind{modified, modified}, []event.ChangeKind{modified}},
		{"created, then modified", []event.ChangeKind{created, modified}, []event.ChangeKind{created}},
		{"created, then deleted", []event.ChangeKind{created, deleted}, nil},
		{"deleted, then created", []event.ChangeKind{deleted, created}, []event.ChangeKind{modified}},
		{"modified, then deleted", []event.ChangeKind{modified, deleted}, []event.ChangeKind{deleted}},
	}
	for _, tt := range tests {
		var list []event.FileChange
		for _, k := range tt.kinds {
			list = mergeChange(list, event.FileChange{Path: "f", Kind: k})
		}
		var got []event.ChangeKind
		for _, ch := range list {
			got = append(got, ch.Kind)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestParseStatus(t *testing.T) {
	const out = "1 .M N... 100644 100644 100644 a b f.go\n2 R. N... x y\nu UU x\n? new one\n? other\n"
	if got := parseStatus(out); got.Modified != 3 || got.Untracked != 2 {
		t.Errorf("%+v", got)
	}
}

func TestTextStreamJoinsCharacters(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, text := range []string{
		"", "plain", "né€😀", "\xff\xfe", "a\xe2\x82", strings.Repeat("日本語😀\xc3", 50),
	} {
		for range 50 {
			var s textStream
			var got strings.Builder
			for rest := []byte(text); len(rest) > 0; {
				n := 1 + rnd.IntN(min(5, len(rest)))
				piece := s.next(rest[:n])
				if !utf8.ValidString(piece) {
					t.Fatalf("a piece of %q is %q", text, piece)
				}
				got.WriteString(piece)
				rest = rest[n:]
			}
			got.WriteString(s.last())
			if want := validText([]byte(text)); got.String() != want {
				t.Fatalf("%q became %q", want, got.String())
			}
		}
	}
}

// TestPrunable has outputs of 15,000 tokens, each of another tool.
func TestPrunable(t *testing.T) {
	user := session.Turn{Kind: session.TurnUser}
	out := func(names ...string) session.Turn {
		turn := session.Turn{Kind: session.TurnToolResults}
		for _, name := range names {
			turn.Results = append(turn.Results, llm.ToolResult{
				CallID: name, Name: strings.TrimRight(name, "0123456789"), IsError: name == "fails",
				Parts: []llm.Part{llm.Text(strings.Repeat("abc ", 15_000))},
			})
		}
		return turn
	}
	for name, tt := range map[string]struct {
		turns []session.Turn
		want  []string
		worth bool
	}{
		"new ones": {
			[]session.Turn{user, out("a1", "a2"), user, out("a3", "a4", "a5", "a6")},
			nil, false,
		},
		"the newest 40,000 tokens": {
			[]session.Turn{user, out("a1", "a2", "a3", "a4"), user, user},
			[]string{"a1", "a2"},
			true,
		},
		"new ones are among the newest": {
			[]session.Turn{user, out("a1", "a2"), user, out("a3"), user, out("a4")},
			[]string{"a1", "a2"},
			true,
		},
		"protected tools": {
			[]session.Turn{
				user, out("a1", "skill", "a2", "plan_exit", "fails"), user, out("a3", "a4"), user,
				out("a5"),
			},
			[]string{"a1", "a2"},
			true,
		},
		"less than 20,000 tokens": {
			[]session.Turn{user, out("a1"), user, out("a2", "a3"), user, out("a4")},
			[]string{"a1"},
			false,
		},
	} {
		c := Conversation{Turns: tt.turns, Tokens: 100_000, Limit: 99_000}
		got, _ := c.prunable()
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v can be removed, want %v", name, got, tt.want)
		}
		s, err := whenFull{}.Shorten(t.Context(), c)
		if err != nil || len(s.Prune) > 0 != tt.worth {
			t.Errorf("%s: %v are removed, %v", name, s.Prune, err)
		}
	}
}
