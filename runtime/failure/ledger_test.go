package failure_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/failure"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// shell returns a call of shell, which fails with kind unless that is empty.
func shell(id, command, kind string) failure.Call {
	return callOf(tool.Shell(), id, "command", command, kind)
}

func read(id, path, kind string) failure.Call {
	return callOf(tool.ReadFile(), id, "file_path", path, kind)
}

func write(id, path, kind string) failure.Call {
	return callOf(tool.WriteFile(), id, "file_path", path, kind)
}

func callOf(t tool.Tool, id, parameter, value, kind string) failure.Call {
	args, err := json.Marshal(map[string]string{parameter: value})
	if err != nil {
		panic(err)
	}
	c := llm.ToolCall{ID: id, Name: t.Name, Arguments: string(args)}
	if kind == "" {
		return failure.CallOf(t, c, nil)
	}
	return failure.CallOf(t, c, &event.Failure{
		Source: event.FailureTool, Kind: kind, Tool: t.Name, CallID: id, Learning: "learned from " + id,
	})
}

func open(l *failure.Ledger) (ids []string) {
	for _, f := range l.Open() {
		ids = append(ids, f.CallID)
	}
	return ids
}

func TestResolved(t *testing.T) {
	fails := "shell_exit"
	for name, tt := range map[string]struct {
		fails, succeeds failure.Call
		resolved        bool
	}{
		"the same command": {shell("a", "go test ./x", fails), shell("b", "go test ./x", ""), true},
		"other options": {
			shell("a", "cd x && go test -v ./...", fails), shell("b", "CGO_ENABLED=0 go test", ""), true,
		},
		"another argument": {shell("a", "go test", fails), shell("b", "go build", ""), false},
		"another program":  {shell("a", "make", fails), shell("b", "cat Makefile", ""), false},
		"the same file":    {read("a", "f", "not_found"), read("b", "f", ""), true},
		"another file":     {read("a", "f", "not_found"), read("b", "g", ""), false},
		"another tool":     {read("a", "f", "not_found"), shell("b", "cat f", ""), false},
		"written now":      {read("a", "f", "not_found"), write("b", "f", ""), true},
		"another written":  {read("a", "f", "not_found"), write("b", "g", ""), false},
		"only read":        {write("a", "f", "edit_conflict"), read("b", "f", ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			var l failure.Ledger
			l.Add(failure.Round{tt.fails})
			if got := l.Resolves(tt.succeeds); (len(got) == 1) != tt.resolved {
				t.Errorf("resolves %q", got)
			}
			if got := open(&l); len(got) != 1 {
				t.Errorf("before the end of the round %q are open", got)
			}
			l.Add(failure.Round{tt.succeeds})
			if got := open(&l); (len(got) == 0) != tt.resolved {
				t.Errorf("%q are open", got)
			}
		})
	}
}

// TestResolvedMistake has calls that no tool could run, which a correct one resolves.
func TestResolvedMistake(t *testing.T) {
	var l failure.Ledger
	c := failure.CallOf(tool.ReadFile(), llm.ToolCall{ID: "a", Name: "read_file", Arguments: "{"},
		&event.Failure{
			Source: event.FailureValidation, Kind: "validation", Tool: "read_file", CallID: "a",
		})
	l.Add(failure.Round{c, shell("b", "false", "shell_exit")})
	l.Add(failure.Round{read("c", "f", "")})
	if got := open(&l); !slices.Equal(got, []string{"b"}) {
		t.Errorf("%q are open", got)
	}
}

func TestRoundsInRow(t *testing.T) {
	exits, missing, canceled := "shell_exit", "not_found", string(tool.KindCanceled)
	for name, tt := range map[string]struct {
		rounds []failure.Round
		want   []int
	}{
		"one kind": {
			[]failure.Round{
				{shell("a", "x", exits)},
				{shell("b", "y", exits), shell("c", "z", exits)},
				{shell("d", "x", exits)},
			}, []int{1, 2, 3},
		},
		"another kind": {
			[]failure.Round{
				{shell("a", "x", exits)}, {read("b", "y", missing)}, {read("c", "y", missing)},
			}, []int{1, 1, 2},
		},
		"two kinds at once": {
			[]failure.Round{{shell("a", "x", exits)}, {shell("b", "x", exits), read("c", "y", missing)}},
			[]int{1, 0},
		},
		"a success between": {
			[]failure.Round{
				{shell("a", "x", exits)},
				{shell("b", "x", exits), read("c", "y", "")},
				{shell("d", "x", exits)},
			}, []int{1, 0, 1},
		},
		"canceled calls do not count": {
			[]failure.Round{
				{shell("a", "x", exits)}, {shell("b", "x", canceled)}, {shell("c", "x", exits)},
			}, []int{1, 1, 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var l failure.Ledger
			var got []int
			for _, r := range tt.rounds {
				got = append(got, l.Add(r))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
			l.Forgive()
			if n := l.Add(failure.Round{shell("z", "x", exits)}); n != 1 {
				t.Errorf("%d rounds after Forgive", n)
			}
		})
	}
}

func TestRecite(t *testing.T) {
	var l failure.Ledger
	l.Add(failure.Round{shell("a", "go test -v ./...", "shell_exit")})
	if text := l.Recite(); text != "" {
		t.Errorf("the model knows already: %q", text)
	}
	l.Add(failure.Round{read("b", "f", "not_found")})
	const want = "Open failures, the newest last; do not repeat what failed without a change:\n" +
		"- shell go test: learned from a\n- read_file f: learned from b"
	if text := l.Recite(); text != want {
		t.Errorf("%q", text)
	}
	l.Add(failure.Round{shell("c", "go test ./x", ""), read("d", "g", "not_found")})
	if text := l.Recite(); strings.Contains(text, "go test") || !strings.Contains(text, "f: learned") {
		t.Errorf("%q", text)
	}
}

// TestReciteBounds has many failures with long texts: five of them make at most 144 tokens, of four
// characters, and what helped in earlier sessions at most 75 for each.
func TestReciteBounds(t *testing.T) {
	var l failure.Ledger
	long := strings.Repeat("long ", 1000)
	for i := range 200 {
		c := read(fmt.Sprint(i), fmt.Sprint(i, long), "not_found")
		c.Failure.Learning = long
		l.Add(failure.Round{c})
	}
	text := l.Recite()
	if n := utf8.RuneCountInString(text); n > 576 || strings.Count(text, "\n") != 5 {
		t.Errorf("%d characters: %s", n, text)
	}
	round := failure.Round{}
	for _, kind := range []string{"not_found", "permission", "busy", "invalid", "timeout"} {
		c := read(kind, kind+long, kind)
		c.Failure.Past = &event.PastFailure{SessionID: "20260102-030405-abcdef", Remedy: long}
		round = append(round, c)
	}
	l.Add(round)
	past := l.Recite()
	if n := utf8.RuneCountInString(past); n > 5*300 || strings.Count(past, "what worked then") != 5 {
		t.Errorf("%d characters: %s", n, past)
	}
	if n := len(l.Open()); n != 50 {
		t.Errorf("%d failures are kept", n)
	}
}

// TestRecitePast names a similar failure of an earlier session once.
func TestRecitePast(t *testing.T) {
	var l failure.Ledger
	add := func(id string) string {
		c := shell(id, "go build "+id, "shell_exit")
		c.Failure.Learning = "no module"
		c.Failure.Past = &event.PastFailure{SessionID: "s1", Remedy: `shell {"command":"go mod tidy"}`}
		l.Add(failure.Round{c})
		return l.Recite()
	}
	const want = "An earlier session (s1) failed in the same way; what worked then: " +
		`shell {"command":"go mod tidy"}`
	if text := add("a"); text != want {
		t.Errorf("%q", text)
	}
	if text := add("b"); strings.Contains(text, "s1") {
		t.Errorf("%q", text)
	}
}

// TestNote has failures that belong to no call.
func TestNote(t *testing.T) {
	var l failure.Ledger
	l.Note(failure.OfCheck("the check failed", 1, "out\nwant 1, got 2\n\n", at))
	l.Note(failure.OfTask("no way", at))
	list := l.Open()
	if len(list) != 2 || list[0].Learning != "want 1, got 2" || list[1].Kind != failure.KindTask {
		t.Errorf("%+v", list)
	}
	l.Add(failure.Round{shell("a", "x", "")})
	l.Passed(failure.KindCheck)
	if list := l.Open(); len(list) != 1 || list[0].Kind != failure.KindTask {
		t.Errorf("%+v", list)
	}
}

func TestRestore(t *testing.T) {
	var l failure.Ledger
	f := *shell("a", "go vet ./...", "shell_exit").Failure
	l.Restore(tool.Shell(), llm.ToolCall{
		ID: "a", Name: "shell", Arguments: `{"command":"go vet ./..."}`,
	}, f)
	l.Restore(tool.Tool{}, llm.ToolCall{}, failure.OfTask("no way", at))
	l.Add(failure.Round{read("b", "f", "not_found")})
	if text := l.Recite(); !strings.Contains(
		text,
		"- shell go vet: learned from a\n- task_failed: no way",
	) {
		t.Errorf("%q", text)
	}
	l.Add(failure.Round{shell("c", "go vet", "")})
	if got := open(&l); !slices.Equal(got, []string{"", "b"}) {
		t.Errorf("%q are open", got)
	}
}

// TestAllFailuresAreResolved has a command that fails twice: its success is about both.
func TestAllFailuresAreResolved(t *testing.T) {
	var l failure.Ledger
	for _, id := range []string{"a", "b"} {
		l.Add(failure.Round{shell(id, "go test ./x", "shell_exit")})
	}
	if got := l.Resolves(shell("c", "go test ./x", "")); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("resolves %q", got)
	}
}

// TestSuccessAside has a success that is none of the work beside each failure.
func TestSuccessAside(t *testing.T) {
	var l failure.Ledger
	aside := failure.CallOf(tool.PlanTools(nil)[2], llm.ToolCall{Name: "plan_read"}, nil)
	for want := 1; want <= 3; want++ {
		if n := l.Add(failure.Round{shell(fmt.Sprint(want), "x", "shell_exit"), aside}); n != want {
			t.Errorf("%d rounds, want %d", n, want)
		}
	}
}

// TestResolvedInRound has a failure that a later call of the same round resolves.
func TestResolvedInRound(t *testing.T) {
	var l failure.Ledger
	update := tool.PlanTools(nil)[1]
	for i := range 3 {
		c := llm.ToolCall{ID: fmt.Sprint(i), Name: "plan_update"}
		failed := failure.CallOf(update, c, &event.Failure{
			Source: event.FailureValidation, Kind: "validation", Tool: c.Name, CallID: c.ID,
		})
		l.Failed(failed)
		if got := l.Resolves(failure.CallOf(update, c, nil)); !slices.Contains(got, c.ID) {
			t.Errorf("resolves %q", got)
		}
		if n := l.Add(failure.Round{failed, failure.CallOf(update, c, nil)}); n != i {
			t.Errorf("%d rounds", n)
		}
		if n := l.Add(failure.Round{failed}); n != i+1 {
			t.Errorf("%d rounds, want %d", n, i+1)
		}
	}
}
