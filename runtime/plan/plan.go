// Package plan is the plan of a task: its subtasks, what they depend on, and how far they are. A
// Plan is a value; a change makes another one.
package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/internal/shorten"
)

// Status is how far a subtask is.
type Status string

// Statuses of subtasks. Completed, Failed and Cancelled are final until an Update says otherwise.
const (
	// Pending: it can begin.
	Pending Status = "pending"
	// Blocked: another one that it depends on is not completed.
	Blocked    Status = "blocked"
	InProgress Status = "in_progress"
	Completed  Status = "completed"
	Failed     Status = "failed"
	Cancelled  Status = "cancelled"
)

// Bounds of a plan. Lengths are in bytes.
const (
	MaxTasks = 50
	MaxID    = 40
	MaxText  = 500
)

// Plan has the subtasks of a task, in an order in which each comes after those that it depends on.
// The zero value is no plan.
type Plan struct {
	Goal string `json:"goal"`
	// CancelDependants cancels what depends on a failed or cancelled subtask; otherwise it is blocked.
	CancelDependants bool   `json:"cancel_dependants,omitempty"`
	Tasks            []Task `json:"tasks"`
}

// Task is a subtask.
type Task struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	// DependsOn are the IDs of subtasks that must be completed before.
	DependsOn []string `json:"depends_on,omitempty"`
	// Parallel means that a sub-agent may do it beside others.
	Parallel bool   `json:"parallel,omitempty"`
	Status   Status `json:"status"`
	// Note is what came of it, or why it failed.
	Note string `json:"note,omitempty"`
}

// Change is a change of a subtask. An empty Status or Note keeps the present one.
type Change struct {
	ID     string `json:"id"`
	Status Status `json:"status"`
	Note   string `json:"note"`
}

// New returns a plan with subtasks, whose empty status means Pending. A circle of dependencies, an
// ID that is missing, unknown or used twice, and a text that is too long or missing are errors.
func New(goal string, cancelDependants bool, tasks []Task) (Plan, error) {
	p := Plan{Goal: strings.TrimSpace(goal), CancelDependants: cancelDependants}
	switch {
	case p.Goal == "":
		return Plan{}, fmt.Errorf("goal is empty")
	case len(goal) > MaxText:
		return Plan{}, fmt.Errorf("goal has %d bytes, more than %d", len(goal), MaxText)
	case len(tasks) == 0 || len(tasks) > MaxTasks:
		return Plan{}, fmt.Errorf("a plan has 1 to %d tasks, not %d", MaxTasks, len(tasks))
	}
	known := make(map[string]bool)
	for _, t := range tasks {
		switch {
		case t.ID == "" || len(t.ID) > MaxID || strings.ContainsAny(t.ID, " \t\n,"):
			return Plan{}, fmt.Errorf(
				"the ID %.50q has no character, more than %d, a space or a comma",
				t.ID,
				MaxID,
			)
		case known[t.ID]:
			return Plan{}, fmt.Errorf("two tasks have the ID %s", t.ID)
		case strings.TrimSpace(t.Title) == "" || len(t.Title) > MaxText || len(t.Note) > MaxText:
			return Plan{}, fmt.Errorf("the title of %s is empty, or it or the note has more than %d bytes",
				t.ID, MaxText)
		case t.Status != "" && !t.Status.isSettable() && t.Status != Blocked:
			return Plan{}, unknownStatus(t.Status)
		}
		known[t.ID] = true
	}
	for _, t := range tasks {
		for _, id := range t.DependsOn {
			if !known[id] {
				return Plan{}, fmt.Errorf("%s depends on %s, which is no task of the plan", t.ID, id)
			}
		}
	}
	var err error
	if p.Tasks, err = inOrder(tasks); err != nil {
		return Plan{}, err
	}
	for i := range p.Tasks {
		t := &p.Tasks[i]
		t.Title, t.Note = shorten.Line(t.Title), shorten.Line(t.Note)
		if t.Status == "" {
			t.Status = Pending
		}
	}
	for _, t := range p.Tasks {
		if waits := p.waits(t); (t.Status == InProgress || t.Status == Completed) && len(waits) > 0 {
			return Plan{}, fmt.Errorf("%s is %s, but depends on %s, which is not completed", t.ID, t.Status,
				strings.Join(waits, ", "))
		}
	}
	p.settle()
	return p, nil
}

// inOrder returns a copy of tasks in which each comes after those that it depends on, and otherwise
// in their order.
func inOrder(tasks []Task) ([]Task, error) {
	done := make(map[string]bool)
	var list []Task
	for len(list) < len(tasks) {
		i := slices.IndexFunc(tasks, func(t Task) bool {
			return !done[t.ID] &&
				!slices.ContainsFunc(t.DependsOn, func(id string) bool { return !done[id] })
		})
		if i < 0 {
			return nil, fmt.Errorf("these tasks depend on each other in a circle, or on such: %s",
				strings.Join(circle(tasks, done), ", "))
		}
		t := tasks[i]
		t.DependsOn = slices.Clone(t.DependsOn)
		list, done[t.ID] = append(list, t), true
	}
	return list, nil
}

func circle(tasks []Task, done map[string]bool) (ids []string) {
	for _, t := range tasks {
		if !done[t.ID] {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// settle sets the statuses that follow from others.
func (p *Plan) settle() {
	status := make(map[string]Status)
	for i := range p.Tasks {
		t := &p.Tasks[i]
		if t.Status == Blocked {
			t.Status = Pending
		}
		if t.Status == Pending || t.Status == InProgress {
			for _, id := range t.DependsOn {
				switch s := status[id]; {
				case s == Completed:
				case (s == Failed || s == Cancelled) && p.CancelDependants:
					t.Status = Cancelled
				case t.Status != Cancelled:
					t.Status = Blocked
				}
			}
		}
		status[t.ID] = t.Status
	}
}

func (s Status) isSettable() bool {
	return s == Pending || s == InProgress || s == Completed || s == Failed || s == Cancelled
}

func (s Status) isFinal() bool { return s == Completed || s == Failed || s == Cancelled }

func unknownStatus(s Status) error {
	return fmt.Errorf(
		"the status %.50q is not one of pending, in_progress, completed, failed, cancelled",
		s,
	)
}

// Update returns p with changes, in their order. A subtask that is blocked can neither begin nor be
// completed, and one on which a completed subtask depends stays completed.
func (p Plan) Update(changes []Change) (Plan, error) {
	p.Tasks = slices.Clone(p.Tasks)
	for _, c := range changes {
		i := slices.IndexFunc(p.Tasks, func(t Task) bool { return t.ID == c.ID })
		if i < 0 {
			return Plan{}, fmt.Errorf(
				"the plan has no task %.50q; it has %s",
				c.ID,
				strings.Join(p.ids(), ", "),
			)
		}
		t := &p.Tasks[i]
		switch {
		case c.Status != "" && !c.Status.isSettable():
			return Plan{}, unknownStatus(c.Status)
		case len(c.Note) > MaxText:
			return Plan{}, fmt.Errorf(
				"the note of %s has %d bytes, more than %d",
				c.ID,
				len(c.Note),
				MaxText,
			)
		case (c.Status == InProgress || c.Status == Completed) && len(p.waits(*t)) > 0:
			return Plan{}, fmt.Errorf(
				"%s is blocked: it waits for %s",
				c.ID,
				strings.Join(p.waits(*t), ", "),
			)
		}
		if c.Status != "" {
			t.Status = c.Status
		}
		if c.Note != "" {
			t.Note = shorten.Line(c.Note)
		}
		p.settle()
		for _, other := range p.Tasks {
			if c.Status != "" && c.Status != Completed && other.Status == Completed &&
				slices.Contains(other.DependsOn, c.ID) {
				return Plan{}, fmt.Errorf("%s cannot be %s: %s, which depends on it, is completed; change "+
					"that first", c.ID, c.Status, other.ID)
			}
		}
	}
	return p, nil
}

func (p Plan) ids() (list []string) {
	for _, t := range p.Tasks {
		list = append(list, t.ID)
	}
	return list
}

// waits returns the IDs of the subtasks for which t waits.
func (p Plan) waits(t Task) (list []string) {
	for _, other := range p.Tasks {
		if slices.Contains(t.DependsOn, other.ID) && other.Status != Completed {
			list = append(list, other.ID)
		}
	}
	return list
}

// IsOpen reports whether a subtask is neither completed nor failed or cancelled.
func (p Plan) IsOpen() bool {
	return slices.ContainsFunc(p.Tasks, func(t Task) bool { return !t.Status.isFinal() })
}

// Ready returns the subtasks that can begin.
func (p Plan) Ready() (list []Task) {
	for _, t := range p.Tasks {
		if t.Status == Pending {
			list = append(list, t)
		}
	}
	return list
}

// Parallel returns the subtasks that can begin and that sub-agents may do at the same time; none if
// that is only one.
func (p Plan) Parallel() (list []Task) {
	for _, t := range p.Ready() {
		if t.Parallel {
			list = append(list, t)
		}
	}
	if len(list) < 2 {
		return nil
	}
	return list
}

// Bounds of Recite, so that it has about 150 tokens: lines, and characters of a line and of the
// goal.
const (
	maxLines = 10
	maxLine  = 45
	maxGoal  = 80
)

// Recite returns the plan in a short text for a model: the goal, and the subtasks that are not
// completed, of which a long plan shows the first.
func (p Plan) Recite() string {
	var b strings.Builder
	completed, left := 0, 0
	for _, t := range p.Tasks {
		if t.Status == Completed {
			completed++
		}
	}
	fmt.Fprintf(
		&b,
		"Plan (%d of %d completed): %s",
		completed,
		len(p.Tasks),
		shorten.Cut(p.Goal, maxGoal),
	)
	lines := 0
	for _, t := range p.Tasks {
		switch {
		case t.Status == Completed:
			continue
		case lines == maxLines:
			left++
			continue
		}
		lines++
		b.WriteString("\n- " + shorten.Cut(p.line(t), maxLine))
	}
	if left > 0 {
		fmt.Fprintf(&b, "\n- and %d more; plan_read shows all", left)
	}
	return b.String()
}

// line returns a subtask in a line.
func (p Plan) line(t Task) string {
	line := string(t.Status) + " " + t.ID + ": " + t.Title
	if t.Status == Blocked {
		line = fmt.Sprintf("%s %s (by %s): %s", t.Status, t.ID, strings.Join(p.waits(t), ", "), t.Title)
	}
	return line
}

// String returns the whole plan, with notes.
func (p Plan) String() string {
	var b strings.Builder
	b.WriteString("Goal: " + p.Goal)
	for _, t := range p.Tasks {
		b.WriteString("\n- " + p.line(t))
		if t.Note != "" {
			b.WriteString(" [" + t.Note + "]")
		}
	}
	return b.String()
}
