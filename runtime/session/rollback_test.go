package session_test

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

func user(text string) session.Turn {
	return session.Turn{Kind: session.TurnUser, Parts: []llm.Part{llm.Text(text)}}
}

// change is a file whose versions are named by letters; "" is a missing one.
func change(name, before, after string) session.FileChange {
	version := func(letter string) session.FileVersion {
		if letter == "" {
			return session.FileVersion{}
		}
		return session.FileVersion{Mode: 0o644, SHA256: letter}
	}
	return session.FileChange{
		Name: session.FileName(name), Before: version(before), After: version(after),
	}
}

// rolled returns a session of two inputs with three rounds, which change the file f from a to b, c
// and d.
func rolled(t *testing.T) *session.Disk {
	t.Helper()
	s := create(t)
	round := func(call, before, after string) []any {
		return []any{
			session.TypeTurn, answer(call), session.TypeToolStarted,
			session.ToolStarted{CallID: call},
			session.TypeToolResult, result(call), session.TypeSnapshot,
			session.Snapshot{
				Call: call, Changes: []session.FileChange{change("f", before, after)},
			},
		}
	}
	write(t, s, session.TypeStarted, started("s"), session.TypeRunStarted,
		session.RunStarted{RunID: "r"}, session.TypeTurn, user("one")) // 3
	write(t, s, round("1", "a", "b")...) // 7
	write(t, s, round("2", "b", "c")...) // 11
	write(t, s, session.TypeTurn, answer(), session.TypeRunEnded, session.RunEnded{
		RunID: "r", Status: "completed", Spent: session.Spent{Turns: 3},
	}, session.TypeRunStarted, session.RunStarted{RunID: "q"}, session.TypeTurn, user("two")) // 15
	write(t, s, round("3", "c", "d")...)
	return s
}

func texts(r *session.Record) (list []string) {
	for _, turn := range r.Conversation {
		for _, p := range turn.Parts {
			if p.ToolCall != nil {
				list = append(list, p.ToolCall.ID)
			}
		}
		if text := turn.Text(); text != "" {
			list = append(list, text)
		}
	}
	return list
}

func TestRollback(t *testing.T) {
	s := rolled(t)
	r := load(t, s)
	want := []session.Point{
		{Seq: 3, Turns: 1},
		{Seq: 6, Turns: 3, Files: 1},
		{Seq: 10, Turns: 5, Files: 1},
		{Seq: 12, Turns: 6},
		{Seq: 15, Turns: 7},
		{Seq: 18, Turns: 9, Files: 1},
	}
	if diff := cmp.Diff(want, r.Points); diff != "" {
		t.Fatalf("the points (-want +got):\n%s", diff)
	}
	back := func(point int64, before, after string) {
		t.Helper()
		got, err := load(t, s).ChangesBack(point)
		want := []session.FileChange{change("f", before, after)}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("back to %d (-want +got): %v\n%s", point, err, diff)
		}
	}
	back(15, "d", "c")
	back(6, "d", "b")
	back(3, "d", "a")
	if _, err := r.ChangesBack(4); !errors.Is(err, session.ErrNoPoint) {
		t.Errorf("back to an entry that is no point: %v", err)
	}
	write(t, s, session.TypeRolledBack, session.RolledBack{To: 10})
	r = load(t, s)
	if diff := cmp.Diff([]string{"one", "1", "2"}, texts(r)); diff != "" ||
		r.Status() != session.StatusRolledBack || r.Spent.Turns != 4 || len(r.Calls) != 0 {
		t.Errorf("%s, %+v\n%s", r.Status(), r.Spent, diff)
	}
	back(6, "c", "b")
	// What was taken back stays so after another rollback, and the session goes on from there.
	write(t, s, session.TypeResumed, session.Resumed{Started: started("s")}, session.TypeRunStarted,
		session.RunStarted{RunID: "p"}, session.TypeTurn, user("three"), session.TypeTurn, answer("4"))
	write(t, s, session.TypeRolledBack, session.RolledBack{To: 6})
	r = load(t, s)
	if diff := cmp.Diff([]string{"one", "1"}, texts(r)); diff != "" || r.Spent.Turns != 5 {
		t.Errorf("%+v\n%s", r.Spent, diff)
	}
	if got := r.LastCall(6); got != "1" {
		t.Errorf("the last call is %q", got)
	}
	back(3, "b", "a")
}

func load(t *testing.T, s *session.Disk) *session.Record {
	t.Helper()
	r, err := session.Load(s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRollbackWithoutFiles cannot go back over changes that are not known, or that others made.
func TestRollbackWithoutFiles(t *testing.T) {
	s := rolled(t)
	write(t, s, session.TypeSnapshot, session.Snapshot{Call: "3", Lost: "the disk is full"})
	_, err := load(t, s).ChangesBack(12)
	if !errors.Is(err, session.ErrFilesLost) || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("lost: %v", err)
	}
	if _, err := load(t, s).ChangesBack(18); err != nil {
		t.Errorf("nothing to take back: %v", err)
	}
	s = rolled(t)
	write(t, s, session.TypeSnapshot, session.Snapshot{
		Call: "?", Changes: []session.FileChange{change("f", "mine", "e"), change("g", "", "g")},
	})
	chain := (*session.ChainError)(nil)
	if _, err := load(t, s).ChangesBack(3); !errors.As(err, &chain) ||
		!slices.Equal(chain.Names, []string{"f"}) {
		t.Errorf("changed by others: %v", err)
	}
}

func TestCompose(t *testing.T) {
	got, err := session.Compose(
		[]session.FileChange{change("a", "1", "2"), change("b", "", "1"), change("c", "1", "2")},
		[]session.FileChange{change("a", "2", "3"), change("b", "1", ""), change("d", "1", "")})
	want := []session.FileChange{change("a", "1", "3"), change("c", "1", "2"), change("d", "1", "")}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestCopy copies a session until a point, and all of it.
func TestCopy(t *testing.T) {
	s := rolled(t)
	sum := strings.Repeat("ab", 32)
	if err := s.PutObject(sum, 4, strings.NewReader("text")); err != nil {
		t.Fatal(err)
	}
	write(t, s, session.TypeRolledBack, session.RolledBack{To: 15}, session.TypeTurn, user("three"),
		session.TypeAgentStarted, session.AgentStarted{AgentID: "agent_4"})
	r := load(t, s)
	for point, want := range map[int64][]string{
		0: {"one", "1", "2", "two", "three"}, 21: {"one", "1", "2", "two", "three"},
		10: {"one", "1", "2"}, 3: {"one"},
	} {
		dir := filepath.Join(t.TempDir(), "copy")
		err := r.Copy(dir, session.CopyOptions{
			Point: point, Change: func(s *session.Started) { s.Forked = "s" },
		})
		if err != nil {
			t.Fatal(err)
		}
		d, copied := open(t, dir)
		if diff := cmp.Diff(want, texts(copied)); diff != "" || copied.Started.ID != "copy" ||
			copied.Started.Forked != "s" || copied.Status() != session.StatusRolledBack {
			t.Errorf("until %d: %+v\n%s", point, copied.Started, diff)
		}
		if !copied.Created.Equal(r.Created) || !copied.Updated.After(r.Updated) {
			t.Errorf("from %s to %s, the copied one from %s to %s", copied.Created, copied.Updated,
				r.Created, r.Updated)
		}
		if agents := map[int64]int{0: 4}[point]; copied.Agents != agents {
			t.Errorf("until %d: the highest agent is %d", point, copied.Agents)
		}
		f, err := d.OpenObject(sum)
		if err != nil {
			t.Fatal(err)
		}
		if data, err := io.ReadAll(f); err != nil || string(data) != "text" {
			t.Errorf("the object is %q, %v", data, err)
		}
		_ = f.Close() // it was only read
		last := copied.Points[len(copied.Points)-1].Seq
		if _, err := copied.ChangesBack(3); err != nil || point == 10 && last != 10 {
			t.Errorf("back in the copy: %v, the last point is %d", err, last)
		}
	}
}

func TestRemoveUnfinished(t *testing.T) {
	dir := t.TempDir()
	add := func(name string, entries ...any) string {
		t.Helper()
		s, err := session.Create(filepath.Join(dir, name), session.Options{})
		if err != nil {
			t.Fatal(err)
		}
		write(t, s, entries...)
		closeSession(t, s)
		return name
	}
	agent := func(parent string) []any {
		return []any{session.TypeStarted, session.Started{ID: "a", Model: "m", Parent: parent}}
	}
	kept := []string{
		add("root", session.TypeStarted, started("root")),
		add("root-agent_1", agent("root")...),
		add("root-agent_1-agent_1", agent("root-agent_1")...),
	}
	add("empty")
	add("gone-agent_1", agent("gone")...)
	add("gone-agent_1-agent_1", agent("gone-agent_1")...)
	add("root.copy", session.TypeStarted, started("root"))
	for _, name := range []string{"nothing", "other/x"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	used, err := session.Create(filepath.Join(dir, "used"), session.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeSession(t, used)
	kept = append([]string{"other"}, append(kept, "used")...)

	names := func() (list []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			list = append(list, e.Name())
		}
		return list
	}
	all := names()
	for _, tt := range []struct {
		before time.Time
		want   []string
	}{{time.Now().Add(-time.Hour), all}, {time.Now().Add(time.Hour), kept}} {
		if err := session.RemoveUnfinished(dir, tt.before); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, names()); diff != "" {
			t.Errorf("left before %v (-want +got):\n%s", tt.before, diff)
		}
	}
	if err := session.RemoveUnfinished(filepath.Join(dir, "missing"), time.Now()); err != nil {
		t.Error(err)
	}
}

func TestObjects(t *testing.T) {
	s := create(t)
	sum := strings.Repeat("0", 64)
	if _, err := s.OpenObject(sum); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing object: %v", err)
	}
	if _, err := s.OpenObject("../../x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a name that is no hash: %v", err)
	}
	if err := s.PutObject(sum, session.MaxObjects+1, strings.NewReader("")); err == nil ||
		!errors.Is(err, session.ErrFull) {
		t.Errorf("too large: %v", err)
	}
	if err := s.PutObject(sum, session.MaxObjects, strings.NewReader("x")); err != nil {
		t.Errorf("the last one: %v", err)
	}
	if err := s.PutObject(strings.Repeat("1", 64), 1, strings.NewReader("x")); !errors.Is(err,
		session.ErrFull) {
		t.Errorf("one more: %v", err)
	}
	if err := s.PutObject(sum, session.MaxObjects, strings.NewReader("y")); err != nil {
		t.Errorf("the same content again: %v", err)
	}
	f, err := s.OpenObject(sum)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	if content, err := io.ReadAll(f); err != nil || string(content) != "x" {
		t.Errorf("%q, %v; a content is stored once", content, err)
	}
}

// FuzzFileName reads names that are written.
func FuzzFileName(f *testing.F) {
	for _, name := range []string{"a", `"a`, "\xff", "ä\n", `"\xff"`, ""} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		data, err := json.Marshal(session.FileName(name))
		var back session.FileName
		if err == nil {
			err = json.Unmarshal(data, &back)
		}
		if err != nil || string(back) != name {
			t.Errorf("%q is %s and then %q, %v", name, data, back, err)
		}
	})
}

// TestRollbackAfterLoss has a snapshot with the changes of a round whose own were lost.
func TestRollbackAfterLoss(t *testing.T) {
	s := create(t)
	write(t, s, session.TypeStarted, started("s"), session.TypeRunStarted, session.RunStarted{},
		session.TypeTurn, user("one"), session.TypeTurn, answer("1"), session.TypeToolResult, result("1"),
		session.TypeSnapshot, session.Snapshot{Call: "1", Lost: "a reason"},
		session.TypeTurn, answer("2"), session.TypeToolResult, result("2"),
		session.TypeSnapshot, session.Snapshot{
			Call: "2", Changes: []session.FileChange{change("f", "a", "c")},
		})
	if _, err := load(t, s).ChangesBack(5); !errors.Is(err, session.ErrFilesLost) {
		t.Errorf("back to the lost state: %v", err)
	}
}

// TestRollbackOfSummary brings back turns that a summary replaced, and summarizes again.
func TestRollbackOfSummary(t *testing.T) {
	s := create(t)
	write(t, s, session.TypeStarted, started("s"), session.TypeRunStarted, session.RunStarted{})
	for _, text := range []string{"one", "two", "three", "four"} {
		write(t, s, session.TypeTurn, user(text))
	}
	write(t, s, session.TypeCompacted, session.Compacted{Keep: 1, Turn: user("summary")},
		session.TypeRolledBack, session.RolledBack{To: 6},
		session.TypeCompacted, session.Compacted{Keep: 3, Turn: user("another")})
	if r := load(t, s); len(r.Turns) != 4 || r.Turns[1].Text() != "two" {
		t.Errorf("the turns are %+v", r.Turns)
	}
	write(t, s, session.TypeCompacted, session.Compacted{Keep: 9})
	if _, err := session.Load(s.Dir()); err == nil {
		t.Error("a summary that keeps more turns than there are is no mistake")
	}
	other := create(t)
	write(t, other, session.TypeStarted, started("s"), session.TypeCompacted,
		session.Compacted{Keep: 1})
	if _, err := session.Load(other.Dir()); err == nil {
		t.Error("the same without a rollback is no mistake")
	}
}

// TestSnapshotInRound has a snapshot before the last result of a round, and calls that a rollback
// removed.
func TestSnapshotInRound(t *testing.T) {
	s := create(t)
	write(t, s, session.TypeStarted, started("s"), session.TypeRunStarted, session.RunStarted{},
		session.TypeTurn, user("one"), session.TypeTurn, answer("1", "2"),
		session.TypeToolStarted, session.ToolStarted{CallID: "1"}, session.TypeToolResult, result("1"),
		session.TypeSnapshot, session.Snapshot{
			Call: "1", Changes: []session.FileChange{change("f", "a", "b")},
		}, session.TypeToolStarted, session.ToolStarted{CallID: "2"}, session.TypeToolResult, result("2"),
		session.TypeSnapshot, session.Snapshot{})
	r := load(t, s)
	all := func(session.Run) bool { return true }
	if last := r.Points[len(r.Points)-1]; last.Seq != 9 || last.Files != 1 {
		t.Errorf("the points are %+v", r.Points)
	}
	if back, err := r.ChangesBack(9); err != nil || len(back) > 0 {
		t.Errorf("back to the end of the round: %v, %v", back, err)
	}
	if got := r.Unrecorded([]string{"x"}, all); got != "2" {
		t.Errorf("unrecorded is %q", got)
	}
	if got := r.Unrecorded([]string{"y"}, all); got != "" {
		t.Errorf("of another tool %q is unrecorded", got)
	}
	if got := r.Unrecorded([]string{"x"}, func(session.Run) bool { return false }); got != "" {
		t.Errorf("of a run that does not count %q is unrecorded", got)
	}
	write(t, s, session.TypeRolledBack, session.RolledBack{To: 3})
	if r := load(t, s); !slices.Equal(r.CallIDs, []string{"1", "2"}) {
		t.Errorf("the IDs of calls are %q", r.CallIDs)
	}
}
