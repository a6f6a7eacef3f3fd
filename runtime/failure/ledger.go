package failure

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/sandboxagent/sandboxagent/internal/shorten"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

const (
	// recited is the number of open failures that a model is told of again.
	recited = 5
	// maxOpen bounds the failures that are kept; the oldest go first.
	maxOpen = 50
	// maxLine bounds a line of Recite, in characters, so that the failures have about 145 tokens.
	maxLine = 98
)

// A Ledger has the open failures of a session. The zero value is empty. It is safe for concurrent
// use.
type Ledger struct {
	mu   sync.Mutex
	open []entry
	// pending are the failures of the round that goes on.
	pending []entry
	// kind is that of the last failing rounds, and rounds their number in a row.
	kind   string
	rounds int
	// named are the failures of earlier sessions that the model has been told of.
	named map[string]bool
}

type entry struct {
	event.Failure

	call Call
	// ids are the calls that failed in this way, the newest last.
	ids []string
	// fresh means that the model has just got it as a result.
	fresh bool
}

// A Round has the outcomes of the calls of one answer, in their order.
type Round []Call

// A Call is a call with its outcome.
type Call struct {
	// Tool is the name of the tool.
	Tool string
	// Topic tells what the call is about: a later success about the same makes a failure obsolete.
	Topic string
	// File names the files that the call reads or writes; empty without any. One that writes makes
	// the failures of others about the same obsolete.
	File   string
	Writes bool
	// Failure is nil after a success.
	Failure *event.Failure
	// Aside marks a call of a tool that only waits, or concerns the session or its user alone. Its
	// success is none of the work.
	Aside bool
}

// CallOf returns the call c of t, which is the zero value for an unknown tool, with its failure.
func CallOf(t tool.Tool, c llm.ToolCall, f *event.Failure) Call {
	topic, file := c.Name, ""
	if t.Name != "" && json.Valid([]byte(c.Arguments)) {
		for _, r := range t.Requests(json.RawMessage(c.Canonical())) {
			if r.Class == policy.ClassShell {
				r.Subject = aim(r.Subject)
			}
			topic += " " + r.Subject
		}
		if t.Class == policy.ClassRead || t.Class == policy.ClassWrite {
			file = strings.TrimPrefix(topic, c.Name+" ")
		}
	}
	return Call{
		Tool: c.Name, Topic: topic, File: file, Writes: t.Class == policy.ClassWrite, Failure: f,
		Aside: t.Waits || t.Class == policy.ClassHuman,
	}
}

// aim returns the program of a command with its first argument that is no option. Of several
// commands the last one counts, as for the exit code.
func aim(command string) string {
	last := command
	for _, separator := range []string{"&&", ";", "\n"} {
		parts := strings.Split(last, separator)
		for i := len(parts) - 1; i >= 0; i-- {
			if strings.TrimSpace(parts[i]) != "" {
				last = parts[i]
				break
			}
		}
	}
	var words []string
	for _, w := range strings.Fields(last) {
		option := strings.HasPrefix(w, "-") || strings.Contains(w, "=") && len(words) == 0
		if !option && len(words) < 2 {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
}

// Failed notes a failed call of a round that goes on, so that Resolves knows it before Add.
func (l *Ledger) Failed(c Call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.Failure.Kind != string(tool.KindCanceled) {
		ids := []string{c.Failure.CallID}
		l.pending = append(l.pending, entry{Failure: *c.Failure, call: c, ids: ids})
	}
}

// Resolves returns the IDs of the calls whose open failures a success of c makes obsolete. The
// ledger keeps them until Add.
func (l *Ledger) Resolves(c Call) (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range slices.Concat(l.open, l.pending) {
		if e.resolvedBy(c) {
			ids = append(ids, e.ids...)
		}
	}
	return ids
}

// resolvedBy reports whether a success of c makes e obsolete: it is about the same, or a call of
// the tool that the model could not call, or has written the file.
func (e entry) resolvedBy(c Call) bool {
	return e.CallID != "" && (e.call.Topic == c.Topic || c.Writes && e.call.File == c.File ||
		e.Source == event.FailureValidation && e.Tool == c.Tool)
}

// Add adds the outcomes of a round. Canceled calls do not count, nor failures that a later call of
// the round resolves. It returns the number of rounds in
// a row in which all calls failed, with one kind of failure; zero if a call has succeeded.
func (l *Ledger) Add(r Round) (inRow int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kinds := make(map[string]bool)
	succeeded := false
	l.pending = nil
	for i := range l.open {
		l.open[i].fresh = false
	}
	for _, c := range r {
		switch f := c.Failure; {
		case f == nil:
			succeeded = succeeded || !c.Aside
			l.open = slices.DeleteFunc(l.open, func(e entry) bool { return e.resolvedBy(c) })
		case f.Kind != string(tool.KindCanceled):
			l.keep(entry{Failure: *f, call: c, fresh: true})
		}
	}
	for _, e := range l.open {
		if e.fresh {
			kinds[e.Kind] = true
		}
	}
	switch {
	case succeeded || len(kinds) > 1:
		l.kind, l.rounds = "", 0
	case len(kinds) == 1:
		kind := slices.Collect(maps.Keys(kinds))[0]
		if kind != l.kind {
			l.kind, l.rounds = kind, 0
		}
		l.rounds++
	}
	return l.rounds
}

// Note adds a failure that belongs to no call.
func (l *Ledger) Note(f event.Failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep(entry{Failure: f, call: Call{Topic: f.Kind}, fresh: true})
}

// Restore adds an open failure of an earlier run, of the call c of t or of none.
func (l *Ledger) Restore(t tool.Tool, c llm.ToolCall, f event.Failure) {
	e := entry{Failure: f, call: Call{Topic: f.Kind}}
	if f.CallID != "" {
		e.call = CallOf(t, c, &f)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.Kind != string(tool.KindCanceled) {
		l.keep(e)
	}
}

// Passed removes the failures of that kind that belong to no call.
func (l *Ledger) Passed(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = slices.DeleteFunc(l.open, func(e entry) bool { return e.CallID == "" && e.Kind == kind })
}

// Forgive begins to count rounds again.
func (l *Ledger) Forgive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kind, l.rounds = "", 0
}

// keep adds a failure in place of one about the same. The caller holds the lock.
func (l *Ledger) keep(e entry) {
	l.open = slices.DeleteFunc(l.open, func(have entry) bool {
		same := have.call.Topic == e.call.Topic && have.Kind == e.Kind
		if same {
			e.ids = have.ids
		}
		return same
	})
	if e.CallID != "" {
		e.ids = append(e.ids, e.CallID)
	}
	l.open = append(l.open, e)
	l.open = l.open[max(0, len(l.open)-maxOpen):]
}

// Open returns the open failures, the newest last.
func (l *Ledger) Open() []event.Failure {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]event.Failure, len(l.open))
	for i, e := range l.open {
		list[i] = e.Failure
	}
	return list
}

// Recite returns the newest open failures for a model that has failed again, and what helped in
// earlier sessions against the ones of the last round; empty if the model has just got all of that.
// Similar failures of earlier sessions are named once.
func (l *Ledger) Recite() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.open[max(0, len(l.open)-recited):]
	var b strings.Builder
	if slices.ContainsFunc(list, func(e entry) bool { return !e.fresh }) {
		b.WriteString("Open failures, the newest last; do not repeat what failed without a change:\n")
		for _, e := range list {
			b.WriteString(e.line() + "\n")
		}
	}
	for _, e := range list {
		if k := key(e.Failure); e.fresh && e.Past != nil && !l.named[k] {
			if l.named == nil {
				l.named = make(map[string]bool)
			}
			l.named[k] = true
			b.WriteString(pastLine(*e.Past) + "\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// line returns a failure in a line of at most maxLine characters.
func (e entry) line() string {
	return "- " + shorten.Cut(shorten.Line(e.call.Topic), maxLine/2-2) + ": " +
		shorten.Cut(shorten.Line(e.Learning), maxLine/2-2)
}

// pastLine tells a model of a failure of an earlier session.
func pastLine(p event.PastFailure) string {
	text := fmt.Sprintf("An earlier session (%s) failed in the same way", p.SessionID)
	if p.Remedy != "" {
		return text + "; what worked then: " + shorten.Cut(shorten.Line(p.Remedy), 2*maxLine)
	}
	return text + ", and found no remedy."
}
