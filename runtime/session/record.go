package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/plan"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// Record is the content of a journal: all that a session needs to go on.
type Record struct {
	// Dir is the session's directory, and ID its name.
	Dir, ID string
	// Started has the values of the last entry TypeStarted or TypeResumed.
	Started Started
	// Created and Updated are the times of the first and the last entry.
	Created, Updated time.Time
	// Surroundings is the data of TypeSurroundings.
	Surroundings json.RawMessage
	// Prompt is the last one.
	Prompt Prompt
	// Turns is the history. If Calls is not empty, its last turn is the answer with these calls, whose
	// results are not in Turns.
	Turns []Turn
	// Conversation are all turns, also those that a summary in Turns stands for, without results of
	// the last answer.
	Conversation []Turn
	// CallIDs are the IDs of all calls.
	CallIDs []string
	// Shortened means that the conversation was shortened after the last answer.
	Shortened bool
	Calls     []OpenCall
	// Waiting is the call in Calls that a human has to approve; nil without one.
	Waiting *ApprovalAsked
	Runs    []Run
	// Pruned are the calls without outputs in requests, and Compacted is the last summary.
	Pruned    []string
	Compacted Compacted
	// Planning is the last TypeMode; nil without one.
	Planning *bool
	// Title is the last TypeTitle; empty without one.
	Title string
	// Plan is the last TypePlan.
	Plan plan.Plan
	// Agents is the highest number of a sub-agent.
	Agents int
	// Spent counts what the session has used so far, as limits do, and Models the use of each model.
	// Of a run without an end they lack requests without an answer.
	Spent  Spent
	Models []event.ModelUsage
	// Closed means that the session was closed; otherwise its program works on it, or has died.
	Closed bool
	// Failures are those of all runs, in order.
	Failures []Failure
	// Points are the entries to which the session can be rolled back.
	Points []Point
	// ChangedSince means that files were changed after the last point, or that this is not known.
	ChangedSince bool
	// AgentsLost means that the program has died while sub-agents of the last run were at work, whose
	// last changes nobody has recorded.
	AgentsLost bool
	// Torn is the number of bytes of an incomplete last line, which is no part of the record.
	Torn int64

	outputs map[string]string // call ID → name of the file
	writers int               // entries TypeStarted and TypeResumed
	last    position

	snapshots []recordedSnapshot
	// rollbacks are all of the journal, or none in the first reading, and pointOf has the point of
	// each call with a result.
	rollbacks []rollback
	pointOf   map[string]int64
	// started has the run of each call that was started and may have changed something.
	started map[string]string
}

// OpenCall is a call of the last answer, at least one of whose calls has no result.
type OpenCall struct {
	llm.ToolCall

	RunID               string
	ModelCall, Position int
	// Started is true of a call that may have changed something.
	Started bool
	// Result is nil if the journal has none.
	Result *llm.ToolResult
}

// Failure is a failure, and whether a later success has made it obsolete.
type Failure struct {
	event.Failure

	Resolved bool
	// Remedy are the calls that helped: the last two that succeeded between the failure and the
	// success, without those that change nothing; else the call that succeeded, unless it is the same.
	Remedy []llm.ToolCall
}

// Run is one run of a session.
type Run struct {
	RunStarted
	// Time is the start of the run, Task the text of its input.
	Time time.Time
	Task string
	// In describes the session then, with its environment.
	In Started
	// Agents are the IDs of the sub-agents that it started.
	Agents []string
	// Ended is nil if the program died before the end.
	Ended *RunEnded
}

// Load reads the journal in the directory of a session. An incomplete last line, which a crash
// leaves, is no part of the record. Damage is a *CorruptError.
func Load(dir string) (*Record, error) {
	path := filepath.Join(dir, JournalName)
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("session %s: %w", filepath.Base(dir), err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	return load(f, dir, nil)
}

// load also fills rec, unless that is nil.
func load(f *os.File, dir string, rec *Recording) (*Record, error) {
	b, err := readRecord(f, dir, nil, rec)
	if err == nil && len(b.found) == 0 && b.short != nil {
		err = fmt.Errorf("%s: %w", f.Name(), b.short)
	}
	if err == nil && len(b.found) > 0 {
		if _, err = f.Seek(0, io.SeekStart); err == nil {
			b, err = readRecord(f, dir, b.found, rec)
		}
	}
	if err != nil {
		return nil, err
	}
	r := b.Record
	if r.last.seq == 0 {
		return nil, fmt.Errorf("%s: %w", f.Name(), ErrEmpty)
	}
	if fi, err := f.Stat(); err == nil {
		r.Torn = fi.Size() - r.last.offset
	}
	b.finish()
	r.Agents = max(r.Agents, highestAgent(dir))
	return r, nil
}

// readRecord reads a journal without the entries that rollbacks have removed.
func readRecord(
	f *os.File, dir string, rollbacks []rollback, rec *Recording,
) (*recordBuilder, error) {
	if rec != nil {
		*rec = Recording{}
	}
	b := &recordBuilder{
		rec: rec,
		Record: &Record{
			Dir: dir, ID: filepath.Base(dir), outputs: make(map[string]string), rollbacks: rollbacks,
			pointOf: make(map[string]int64), started: make(map[string]string),
		},
	}
	var failed error
	b.last = readEntries(f, f.Name(), func(e Entry, err error) bool {
		if err == nil {
			if err = b.add(e); err != nil {
				err = fmt.Errorf("%s: entry %d (%s): %w", f.Name(), e.Seq, e.Type, err)
			}
		}
		failed = err
		return err == nil
	})
	return b, failed
}

// ErrEmpty means that a program died before it wrote the first entry of a session.
var ErrEmpty = errors.New("the journal has no entry")

// recordBuilder makes a record of entries.
type recordBuilder struct {
	*Record

	// rec, unless it is nil, gets the requests, inputs and results too.
	rec *Recording
	// calls are those of the last answer, by their IDs, and answers the answers of the current run.
	calls   map[string]*OpenCall
	order   []*OpenCall
	answers int
	task    bool // the next turn is the input of a run
	// agents are the sessions that the current run has started, and before the use of models by the
	// runs before it.
	agents []string
	before []event.ModelUsage

	// found are the rollbacks that the first reading finds, and short is a mistake in a summary unless
	// it finds some.
	found []rollback
	short error
}

func (b *recordBuilder) add(e Entry) (err error) {
	if e.Seq == 1 {
		b.Created = e.Time
	}
	b.Updated = e.Time
	b.Closed = b.Closed &&
		(e.Type == TypeSnapshot || e.Type == TypeRolledBack || e.Type == TypeCopied)
	if isDead(b.rollbacks, e.Seq) {
		return b.addDead(e)
	}
	switch e.Type {
	case TypeStarted, TypeResumed:
		b.addAgents()
		b.Started = Started{}
		b.writers++
		return json.Unmarshal(e.Data, &b.Started)
	case TypeSurroundings:
		b.Surroundings = e.Data
	case TypePrompt:
		b.Prompt = Prompt{}
		return json.Unmarshal(e.Data, &b.Prompt)
	case TypeMode, TypeTitle, TypePlan, TypeFailure, TypeState:
		return b.addState(e)
	case TypeRunStarted:
		run := Run{Time: e.Time, In: b.Started}
		err = json.Unmarshal(e.Data, &run.RunStarted)
		b.Runs, b.answers = append(b.Runs, run), 0
		b.task = run.Reply == ""
		b.before = slices.Clone(b.Models)
	case TypeAgentStarted:
		var a AgentStarted
		err = json.Unmarshal(e.Data, &a)
		b.agents = append(b.agents, filepath.Base(a.SessionID))
		// A copy of a session has no sessions of its agents beside it.
		number, _ := strconv.Atoi(a.AgentID[strings.LastIndexByte(a.AgentID, '_')+1:])
		b.Agents = max(b.Agents, number)
		if n := len(b.Runs); n > 0 {
			b.Runs[n-1].Agents = append(b.Runs[n-1].Agents, a.AgentID)
		}
	case TypeRunEnded:
		return b.endRun(e.Data)
	case TypeTurn:
		var t Turn
		if err = json.Unmarshal(e.Data, &t); err == nil {
			err = b.turn(t, e.Seq)
		}
	case TypeSnapshot:
		return b.addSnapshot(e)
	case TypeRolledBack:
		return b.rolledBack(e)
	case TypePruned:
		var p Pruned
		err = json.Unmarshal(e.Data, &p)
		b.Pruned, b.Shortened = append(b.Pruned, p.CallIDs...), true
	case TypeCompacted:
		return b.compact(e.Data)
	case TypeToolStarted:
		var s ToolStarted
		err = json.Unmarshal(e.Data, &s)
		b.started[s.CallID] = s.RunID
		b.settled(s.CallID)
		if c := b.calls[s.CallID]; c != nil {
			c.Started, c.RunID, c.ModelCall, c.Position = true, s.RunID, s.ModelCall, s.Position
		}
	case TypeToolResult:
		var r ToolResult
		if err = json.Unmarshal(e.Data, &r); err == nil {
			b.settled(r.Result.CallID)
			b.result(r, e.Seq)
		}
	case TypeApprovalAsked:
		b.Waiting = &ApprovalAsked{}
		if err = json.Unmarshal(e.Data, b.Waiting); b.rec != nil {
			b.rec.Waited = append(b.rec.Waited, b.Waiting.CallID)
		}
	case TypeEnded:
		b.Closed = true
	}
	return err
}

// addState adds an entry about the state of the run or the task.
func (b *recordBuilder) addState(e Entry) (err error) {
	switch e.Type {
	case TypeMode:
		var m Mode
		err = json.Unmarshal(e.Data, &m)
		b.Planning = &m.Planning
	case TypeTitle:
		var t Title
		err = json.Unmarshal(e.Data, &t)
		b.Title = t.Title
	case TypePlan:
		b.Plan = plan.Plan{}
		err = json.Unmarshal(e.Data, &b.Plan)
	case TypeFailure:
		var f event.Failure
		err = json.Unmarshal(e.Data, &f)
		b.Failures = append(b.Failures, Failure{Failure: f})
	case TypeState:
		var s State
		err = json.Unmarshal(e.Data, &s)
		b.rec.addState(b, s)
	}
	return err
}

func (b *recordBuilder) compact(data json.RawMessage) error {
	c := Compacted{}
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	if err := b.flush(); err != nil {
		return err
	}
	switch err := fmt.Errorf("it keeps %d of %d turns", c.Keep, len(b.Turns)); {
	case c.Keep < 0, c.Keep > len(b.Turns) && len(b.rollbacks) > 0:
		return err
	case c.Keep > len(b.Turns): // a rollback may have brought them back
		b.short, c.Keep = err, len(b.Turns)
	}
	b.rec.addSummary(b, c)
	b.Turns = slices.Concat([]Turn{c.Turn}, b.Turns[len(b.Turns)-c.Keep:])
	b.Compacted, b.Shortened = c, true
	if c.Model == "" {
		return nil
	}
	b.use(event.ModelUsage{Model: c.Model, Answers: 1, Usage: c.Usage, CostUSD: c.CostUSD})
	return nil
}

// use adds an answer to what the session has used.
func (b *recordBuilder) use(m event.ModelUsage) {
	b.Spent.Turns++
	b.Spent.Tokens += m.Usage.Total()
	if m.CostUSD != nil {
		b.Spent.USD += *m.CostUSD
	}
	b.Models = event.AddUsage(b.Models, m)
}

func (b *recordBuilder) turn(t Turn, seq int64) error {
	if err := b.flush(); err != nil {
		return err
	}
	b.rec.addTurn(b, t)
	b.Turns, b.Conversation = append(b.Turns, t), append(b.Conversation, t)
	if b.task {
		b.Runs[len(b.Runs)-1].Task, b.task = t.Text(), false
	}
	if t.Kind == TurnUser {
		b.point(seq, len(b.Conversation))
	}
	if t.Kind != TurnAssistant {
		return nil
	}
	b.answers++
	b.Shortened = b.Shortened && t.Usage.Total() == 0
	b.use(event.ModelUsage{
		Model: b.Prompt.Model, Answers: 1, Usage: t.Usage, CostUSD: t.CostUSD,
	})
	run := ""
	if n := len(b.Runs); n > 0 {
		run = b.Runs[n-1].RunID
	}
	for _, p := range t.Parts {
		if p.ToolCall != nil {
			c := &OpenCall{
				ToolCall: *p.ToolCall, RunID: run, ModelCall: b.answers, Position: len(b.order),
			}
			b.CallIDs = append(b.CallIDs, c.ID)
			b.calls[c.ID] = c
			b.order = append(b.order, c)
		}
	}
	if len(b.order) == 0 {
		b.point(seq, len(b.Conversation))
	}
	return nil
}

// settled follows the start or the result of a call, which does not wait any more.
func (b *recordBuilder) settled(call string) {
	if b.Waiting != nil && b.Waiting.CallID == call {
		b.Waiting = nil
	}
}

func (b *recordBuilder) result(r ToolResult, seq int64) {
	b.rec.addResult(r)
	if r.Failure != nil && r.Failure.Kind != string(tool.KindCanceled) {
		b.Failures = append(b.Failures, Failure{Failure: *r.Failure})
	}
	if c := b.calls[r.Result.CallID]; c != nil {
		b.remedy(r, c)
		c.Result, c.ModelCall = &r.Result, r.ModelCall
		open := func(c *OpenCall) bool { return c.Result == nil }
		if !slices.ContainsFunc(b.order, open) {
			b.point(seq, len(b.Conversation)+1)
			for _, c := range b.order {
				b.pointOf[c.ID] = seq
			}
		}
	}
	if r.OutputFile != "" {
		b.outputs[r.Result.CallID] = filepath.Base(r.OutputFile)
	}
}

// remedy adds the result r of the call c to the failures before it.
func (b *recordBuilder) remedy(r ToolResult, c *OpenCall) {
	if r.Result.IsError {
		return
	}
	for i := range b.Failures {
		f := &b.Failures[i]
		resolves := slices.Contains(r.Resolved, f.CallID)
		switch {
		case f.Resolved || f.CallID == "":
			continue
		case !resolves && c.Started, resolves && len(f.Remedy) == 0 && c.Canonical() != f.Arguments:
			f.Remedy = append(f.Remedy[max(0, len(f.Remedy)-1):], c.ToolCall)
		}
		f.Resolved = resolves
	}
}

// flush adds the results of the last answer, of which none is missing, to the history.
func (b *recordBuilder) flush() error {
	if len(b.order) > 0 {
		t := Turn{Kind: TurnToolResults}
		for _, c := range b.order {
			if c.Result == nil {
				return fmt.Errorf("the call %s before it has no result", c.ID)
			}
			t.Results = append(t.Results, *c.Result)
		}
		b.Turns, b.Conversation = append(b.Turns, t), append(b.Conversation, t)
	}
	b.order, b.calls = nil, make(map[string]*OpenCall)
	return nil
}

// addAgents adds what the sub-agents of a run without an end have used.
func (b *recordBuilder) addAgents() {
	b.AgentsLost = false
	for _, id := range b.agents {
		if !strings.HasPrefix(id, b.ID+"-agent_") {
			continue
		}
		r, err := Load(filepath.Join(filepath.Dir(b.Dir), id))
		if err != nil {
			continue // a session of its own that cannot be read does not keep this one from going on
		}
		b.AgentsLost = b.AgentsLost || r.Status() == StatusInterrupted
		b.Spent.Turns += r.Spent.Turns
		b.Spent.Tokens += r.Spent.Tokens
		b.Spent.USD += r.Spent.USD
		for _, m := range r.Models {
			b.Models = event.AddUsage(b.Models, m)
		}
	}
	b.agents = nil
}

// finish adds the results of the last answer to the history, or, if one is missing, to Calls.
func (b *recordBuilder) finish() {
	if n := len(b.Runs); n > 1 && b.task && b.Runs[n-1].Ended == nil && b.rec == nil {
		b.Runs = b.Runs[:n-1] // its program died before the run had its input
	}
	b.addAgents()
	b.placeSnapshots()
	for i := range b.Failures {
		if f := &b.Failures[i]; !f.Resolved {
			f.Remedy = nil
		}
	}
	if b.flush() == nil {
		return
	}
	for _, c := range b.order {
		b.Calls = append(b.Calls, *c)
	}
}

func (b *recordBuilder) endRun(data json.RawMessage) error {
	var end RunEnded
	if err := json.Unmarshal(data, &end); err != nil {
		return err
	}
	if len(b.Runs) == 0 {
		return errors.New("no run has started")
	}
	b.Runs[len(b.Runs)-1].Ended = &end
	for i := range b.Failures {
		if f := &b.Failures[i]; f.CallID == "" && end.Status == statusCompleted {
			f.Resolved = true
		}
	}
	b.Spent, b.Models, b.agents = end.Spent, b.before, nil
	for _, m := range end.Models { // with those of sub-agents
		b.Models = event.AddUsage(b.Models, m)
	}
	return nil
}

// highestAgent returns the highest number of a sub-agent of the session in dir. Its directory is
// made before the entry about it.
func highestAgent(dir string) (highest int) {
	entries, _ := os.ReadDir(filepath.Dir(dir)) // without them no number is taken
	for _, e := range entries {
		if n, ok := strings.CutPrefix(e.Name(), filepath.Base(dir)+"-agent_"); ok {
			if n, err := strconv.Atoi(n); err == nil {
				highest = max(highest, n)
			}
		}
	}
	return highest
}

// Status returns the status of the last run; StatusInterrupted if the program died in it, or works
// on it, and empty before the first.
func (r *Record) Status() string {
	switch n := len(r.Runs); {
	case n == 0:
		return ""
	case r.Runs[n-1].Ended == nil:
		return StatusInterrupted
	default:
		return r.Runs[n-1].Ended.Status
	}
}

// AwaitsHuman reports whether the session has a question for a human, or a call that waits for an
// approval.
func (r *Record) AwaitsHuman() bool { return r.Waiting != nil || r.Status() == statusAwaitingHuman }

// statusAwaitingHuman is agent.StatusAwaitingHuman.
const statusAwaitingHuman = "awaiting_human"

// statusCompleted is agent.StatusCompleted.
const statusCompleted = "completed"

// StatusInterrupted is the status of a run without an end.
const StatusInterrupted = "interrupted"

// Total returns all tokens of the models and their price in US dollars; nil if it is not known.
func (r *Record) Total() (llm.Usage, *float64) { return event.TotalUsage(r.Models) }

// List loads the sessions in a directory, but for those of sub-agents, the last updated first. They
// are without their turns, so that many of them fit into memory. The function failed gets the
// directory of each that cannot be read. A missing directory has none.
func List(dir string, failed func(dir string, err error)) ([]*Record, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []*Record
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		if !e.IsDir() {
			continue
		}
		r, err := Load(at)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrEmpty):
		case strings.HasSuffix(e.Name(), CopySuffix):
		case err != nil:
			failed(at, err)
		case r.Started.Parent == "":
			r.Turns, r.Conversation, r.CallIDs, r.Failures = nil, nil, nil, nil
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b *Record) int { return b.Updated.Compare(a.Updated) })
	return list, nil
}
