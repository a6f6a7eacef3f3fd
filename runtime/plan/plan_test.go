package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/runtime/plan"
)

func task(id string, dependsOn ...string) plan.Task {
	return plan.Task{ID: id, Title: "do " + id, DependsOn: dependsOn}
}

func newPlan(t *testing.T, cancel bool, tasks ...plan.Task) plan.Plan {
	t.Helper()
	p, err := plan.New("the goal", cancel, tasks)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// statuses returns the subtasks of a plan with their statuses.
func statuses(p plan.Plan) string {
	var list []string
	for _, t := range p.Tasks {
		list = append(list, t.ID+" "+string(t.Status))
	}
	return strings.Join(list, ", ")
}

func TestNewOrdersTasks(t *testing.T) {
	p := newPlan(t, false, task("d", "b", "c"), task("b", "a"), task("c", "a"), task("a"), task("e"))
	if got := statuses(p); got != "a pending, b blocked, c blocked, d blocked, e pending" {
		t.Error(got)
	}
}

func TestMistakes(t *testing.T) {
	long := strings.Repeat("x", plan.MaxText+1)
	for name, tt := range map[string]struct {
		goal  string
		tasks []plan.Task
		want  string
	}{
		"no goal":          {" ", []plan.Task{task("a")}, "goal is empty"},
		"long goal":        {long, []plan.Task{task("a")}, "goal has 501 bytes"},
		"no tasks":         {"g", nil, "1 to 50 tasks, not 0"},
		"too many tasks":   {"g", slices.Repeat([]plan.Task{task("a")}, 51), "not 51"},
		"no ID":            {"g", []plan.Task{task("")}, `the ID ""`},
		"a space in an ID": {"g", []plan.Task{task("a b")}, `the ID "a b"`},
		"the same ID":      {"g", []plan.Task{task("a"), task("a")}, "two tasks have the ID a"},
		"no title":         {"g", []plan.Task{{ID: "a"}}, "title of a is empty"},
		"long note":        {"g", []plan.Task{{ID: "a", Title: "t", Note: long}}, "more than 500 bytes"},
		"unknown status": {
			"g", []plan.Task{{ID: "a", Title: "t", Status: "done"}}, `the status "done"`,
		},
		"unknown task": {"g", []plan.Task{task("a", "b")}, "a depends on b, which is no task"},
		"on itself":    {"g", []plan.Task{task("a", "a")}, "in a circle, or on such: a"},
		"completed too early": {
			"g",
			[]plan.Task{task("a"), {ID: "b", Title: "t", DependsOn: []string{"a"}, Status: plan.Completed}},
			"b is completed, but depends on a, which is not completed",
		},
		"a circle": {
			"g", []plan.Task{task("z"), task("a", "c"), task("b", "a"), task("c", "b")}, "such: a, b, c",
		},
		"behind the circle": {
			"g", []plan.Task{task("a", "b"), task("b", "a"), task("c", "b")}, "such: a, b, c",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := plan.New(tt.goal, false, tt.tasks); err == nil ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestUpdate(t *testing.T) {
	diamond := []plan.Task{task("a"), task("b", "a"), task("c", "a"), task("d", "b", "c")}
	for name, tt := range map[string]struct {
		cancel  bool
		changes []plan.Change
		want    string
	}{
		"begun": {
			false,
			[]plan.Change{{ID: "a", Status: plan.InProgress}},
			"a in_progress, b blocked, c blocked, d blocked",
		},
		"completed": {
			false,
			[]plan.Change{{ID: "a", Status: plan.Completed}},
			"a completed, b pending, c pending, d blocked",
		},
		"one branch": {
			false,
			[]plan.Change{{ID: "a", Status: plan.Completed}, {ID: "b", Status: plan.Completed}},
			"a completed, b completed, c pending, d blocked",
		},
		"all": {
			false, []plan.Change{
				{ID: "a", Status: plan.Completed},
				{ID: "b", Status: plan.Completed},
				{ID: "c", Status: plan.Completed},
				{ID: "d", Status: plan.InProgress},
			}, "a completed, b completed, c completed, d in_progress",
		},
		"a failure blocks": {
			false,
			[]plan.Change{{ID: "a", Status: plan.Failed}},
			"a failed, b blocked, c blocked, d blocked",
		},
		"a failure cancels": {
			true,
			[]plan.Change{{ID: "a", Status: plan.Failed}},
			"a failed, b cancelled, c cancelled, d cancelled",
		},
		"a failure cancels what depends on it": {
			true,
			[]plan.Change{{ID: "a", Status: plan.Completed}, {ID: "b", Status: plan.Failed}},
			"a completed, b failed, c pending, d cancelled",
		},
		"another try": {
			false, []plan.Change{
				{ID: "a", Status: plan.Failed},
				{ID: "a", Status: plan.Pending},
				{ID: "a", Status: plan.Completed},
			}, "a completed, b pending, c pending, d blocked",
		},
		"a failure blocks what has begun": {
			false, []plan.Change{
				{ID: "a", Status: plan.Completed},
				{ID: "b", Status: plan.InProgress},
				{ID: "a", Status: plan.Failed},
			}, "a failed, b blocked, c blocked, d blocked",
		},
		"a failure cancels what has begun": {
			true, []plan.Change{
				{ID: "a", Status: plan.Completed},
				{ID: "b", Status: plan.InProgress},
				{ID: "a", Status: plan.Failed},
			}, "a failed, b cancelled, c cancelled, d cancelled",
		},
		"all over again": {
			false, []plan.Change{
				{ID: "a", Status: plan.Completed},
				{ID: "b", Status: plan.Completed},
				{ID: "b", Status: plan.Pending},
				{ID: "a", Status: plan.InProgress},
			}, "a in_progress, b blocked, c blocked, d blocked",
		},
		"a note only": {
			false, []plan.Change{{ID: "a", Note: "n"}}, "a pending, b blocked, c blocked, d blocked",
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := newPlan(t, tt.cancel, diamond...)
			was := statuses(before)
			after, err := before.Update(tt.changes)
			if err != nil || statuses(after) != tt.want {
				t.Errorf("%s, %v", statuses(after), err)
			}
			if statuses(before) != was {
				t.Errorf("the old plan has changed: %s", statuses(before))
			}
		})
	}
}

func TestUpdateMistakes(t *testing.T) {
	p := newPlan(t, false, task("a"), task("b", "a"))
	for _, tt := range []struct {
		change plan.Change
		want   string
	}{
		{plan.Change{ID: "z", Status: plan.Completed}, `no task "z"; it has a, b`},
		{plan.Change{ID: "b", Status: plan.InProgress}, "b is blocked: it waits for a"},
		{plan.Change{ID: "b", Status: plan.Completed}, "b is blocked: it waits for a"},
		{plan.Change{ID: "a", Status: plan.Blocked}, `the status "blocked"`},
		{plan.Change{ID: "a", Note: strings.Repeat("x", 501)}, "the note of a has 501 bytes"},
	} {
		if _, err := p.Update([]plan.Change{tt.change}); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt.change, err)
		}
	}
	done, err := p.Update([]plan.Change{
		{ID: "a", Status: plan.Completed}, {ID: "b", Status: plan.Completed},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []plan.Status{plan.Pending, plan.InProgress, plan.Failed, plan.Cancelled} {
		want := "a cannot be " + string(s) + ": b, which depends on it, is completed"
		if _, err := done.Update([]plan.Change{{ID: "a", Status: s}}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	after, err := newPlan(t, true, task("a"), task("b", "a")).Update([]plan.Change{
		{ID: "a", Status: plan.Failed},
	})
	if err == nil {
		_, err = after.Update([]plan.Change{{ID: "b", Status: plan.InProgress}})
	}
	if err == nil || !strings.Contains(err.Error(), "waits for a") {
		t.Errorf("a cancelled one begins: %v", err)
	}
	if p, err := p.Update([]plan.Change{{ID: "b", Status: plan.Cancelled}}); err != nil ||
		statuses(p) != "a pending, b cancelled" {
		t.Errorf("%v, %v", p, err)
	}
}

func TestParallel(t *testing.T) {
	beside := func(id string, dependsOn ...string) plan.Task {
		t := task(id, dependsOn...)
		t.Parallel = true
		return t
	}
	p := newPlan(t, false, beside("a"), task("b"), beside("c"), beside("d", "a"))
	ids := func(list []plan.Task) (ids []string) {
		for _, t := range list {
			ids = append(ids, t.ID)
		}
		return ids
	}
	if got := ids(p.Parallel()); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("%q", got)
	}
	if got := ids(p.Ready()); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("%q", got)
	}
	p, err := p.Update([]plan.Change{{ID: "a", Status: plan.InProgress}})
	if got := ids(p.Parallel()); err != nil || len(got) > 0 {
		t.Errorf("%q, %v", got, err)
	}
}

func TestIsOpen(t *testing.T) {
	p := newPlan(t, false, task("a"), task("b"))
	for _, c := range []plan.Change{
		{ID: "a", Status: plan.Completed}, {ID: "b", Status: plan.Failed},
	} {
		if !p.IsOpen() {
			t.Errorf("%s is not open", statuses(p))
		}
		var err error
		if p, err = p.Update([]plan.Change{c}); err != nil {
			t.Fatal(err)
		}
	}
	if p.IsOpen() || (plan.Plan{}).IsOpen() {
		t.Errorf("%s is open", statuses(p))
	}
}

func TestTexts(t *testing.T) {
	p := newPlan(t, false, task("a"), task("b", "a"), task("c"))
	p, err := p.Update([]plan.Change{{ID: "c", Status: plan.Completed, Note: "as\nit was"}})
	if err != nil {
		t.Fatal(err)
	}
	const short = "Plan (1 of 3 completed): the goal\n- pending a: do a\n- blocked b (by a): do b"
	if diff := cmp.Diff(short, p.Recite()); diff != "" {
		t.Error(diff)
	}
	const whole = "Goal: the goal\n- pending a: do a\n- blocked b (by a): do b\n" +
		"- completed c: do c [as it was]"
	if diff := cmp.Diff(whole, p.String()); diff != "" {
		t.Error(diff)
	}
}

// TestReciteBounds has the largest plan: it makes at most 156 tokens, of four characters.
func TestReciteBounds(t *testing.T) {
	var tasks []plan.Task
	for i := range plan.MaxTasks {
		tasks = append(tasks, plan.Task{ID: fmt.Sprint(i), Title: strings.Repeat("é", 250)})
	}
	p, err := plan.New(strings.Repeat("é", 250), false, tasks)
	if err != nil {
		t.Fatal(err)
	}
	text := p.Recite()
	if n := utf8.RuneCountInString(text); n > 624 ||
		!strings.HasSuffix(text, "and 40 more; plan_read shows all") {
		t.Errorf("%d characters: %s", n, text)
	}
}
