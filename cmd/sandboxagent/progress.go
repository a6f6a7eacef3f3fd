package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// redrawEvery is the least time between two changes of the status line.
const redrawEvery = 250 * time.Millisecond

// progress writes the progress of a run to standard error: a line for each finished tool call and,
// on a terminal, a status line below them, with the last rows of the text that grows: an answer,
// or the output of a command. Elsewhere, and for continuous integration, it writes lines only,
// without control characters. What it writes of a text has passed row. It is safe for concurrent
// use.
type progress struct {
	w io.Writer
	// tty is the terminal of the status line; may be nil.
	tty    *os.File
	colour bool
	// outputs is the number of lines that are shown of each result of a tool.
	outputs int
	now     func() time.Time
	stop    chan struct{}
	stopped sync.WaitGroup

	mu      sync.Mutex
	started time.Time
	doing   string
	since   time.Time
	// running are the unfinished tool calls.
	running []*runningCall
	// answer is the text that the root agent's model is writing.
	answer tail
	tokens int64
	// table returns the rows below the lines instead of the status line; may be nil.
	table func(width int) []string
	// drawn are the status line and the rows below it, which the next line replaces.
	drawn   []string
	paused  bool
	pausing sync.Mutex
	closed  bool
	// held are the lines of a pause.
	held bytes.Buffer
}

// runningCall is a tool call of the agent with that ID.
type runningCall struct {
	agent string
	event.ToolCallStart
	output tail
}

func (c *runningCall) String() string { return by(c.agent, c.Name+" "+subject(c.Arguments)) }

// contextActions describe the actions that shorten a conversation.
var contextActions = map[string]string{
	event.ContextPruned:    "old outputs are removed from it",
	event.ContextCompacted: "a summary replaces all but the newest rounds",
}

// by prefixes a text about a sub-agent with its name.
func by(agentID, text string) string {
	if agentID == "" {
		return text
	}
	return agentID + ": " + text
}

// newProgress starts to show progress on w. The caller closes it.
func newProgress(w io.Writer) *progress {
	p := &progress{w: w, now: time.Now, stop: make(chan struct{})}
	// A console of Windows may not support the control sequences of a status line.
	if tty := terminal(w); tty != nil && os.Getenv("TERM") != "dumb" && !inCI() &&
		runtime.GOOS != "windows" {
		p.tty = tty
		p.colour = os.Getenv("NO_COLOR") == ""
	}
	p.started = p.now()
	p.do("starting")
	if p.tty != nil {
		p.stopped.Go(p.redraw)
	}
	return p
}

// inCI reports whether a service for continuous integration runs the program: it keeps a log, which
// a status line would fill.
func inCI() bool {
	value := os.Getenv("CI")
	return value != "" && value != "0" && !strings.EqualFold(value, "false")
}

func (p *progress) redraw() {
	ticker := time.NewTicker(redrawEvery)
	defer ticker.Stop()
	for {
		select {
		case <-p.stop:
			return
		case <-ticker.C:
			p.mu.Lock()
			p.draw()
			p.mu.Unlock()
		}
	}
}

// close removes the status line and ends the display.
func (p *progress) close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	p.clear()
	p.mu.Unlock()
	close(p.stop)
	p.stopped.Wait()
}

// pause removes the status line during fn, which uses the terminal, and writes the lines of that
// time afterwards. Calls run one after the other.
func (p *progress) pause(fn func()) {
	p.pausing.Lock()
	defer p.pausing.Unlock()
	p.mu.Lock()
	p.clear()
	p.paused = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.paused = false
		_, _ = p.held.WriteTo(p.w) // an error has no other output
	}()
	fn()
}

// notify writes a line of the program.
func (p *progress) notify(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line("note", text)
	p.draw()
}

// stopping shows on a terminal that the run is ending.
func (p *progress) stopping() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tty != nil {
		p.do("stopping")
		p.line("note", "stopping; ^C again kills")
		p.draw()
	}
}

// step shows a step of an agent.
func (p *progress) step(d event.Status, agentID string, line func(word, text string)) {
	switch state := agent.State(d.To); {
	case state == agent.StateModelRunning, state == agent.StatePlanning:
		p.do(by(agentID, "waiting for the model"))
	case state == agent.StateReflecting && d.Signal == string(agent.SignalCheck):
		p.do(by(agentID, "checking the work"))
	case state == agent.StateReflecting:
		line("note", "the model looks for the cause of its failures")
		p.do(by(agentID, "waiting for the model"))
	}
}

// observe shows an event.
func (p *progress) observe(e event.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() {
		if p.drawn == nil {
			p.draw()
		}
	}()
	line := func(tag, text string) { p.line(tag, by(e.AgentID, text)) }
	switch d := e.Data.(type) {
	case event.SessionStart:
		if e.AgentID != "" {
			line("", fmt.Sprintf("starts: %s in %s", d.Model, d.WorkDir))
			return
		}
		line("", fmt.Sprintf("%s on %s, %s, %s, session %s", d.Model, d.Backend,
			sandboxWord(d.Guarantees), d.WorkDir, e.SessionID))
	case event.Status:
		p.step(d, e.AgentID, line)
	case event.ReasoningDelta:
		p.doOnce(by(e.AgentID, "thinking"))
	case event.TextDelta:
		p.doOnce(by(e.AgentID, "answering"))
		if e.AgentID == "" && p.tty != nil {
			p.answer.add(d.Text)
		}
	case event.TextEnd:
		p.tokens += d.Usage.Total()
		p.endAnswer(e.AgentID)
		if (d.ToolCalls > 0 || d.Reflection) && strings.TrimSpace(d.Text) != "" {
			p.say(by(e.AgentID, d.Text))
		}
	case event.ToolCallStart:
		c := &runningCall{agent: e.AgentID, ToolCallStart: d}
		p.running = append(p.running, c)
		p.do(c.String())
	case event.ToolOutputDelta:
		p.addOutput(e.AgentID, d)
	case event.ToolCallEnd:
		p.toolEnded(e.AgentID, d)
	case event.Retry:
		p.endAnswer(e.AgentID)
		line("retry", fmt.Sprintf("in %s, attempt %d: %s", shortDuration(milliseconds(d.DelayMS)),
			d.Attempt, d.Error))
		p.do(by(e.AgentID, "waiting to try again"))
	case event.ContextUpdated:
		line("note", fmt.Sprintf("the context is full: %s, about %d instead of %d tokens",
			contextActions[d.Action], d.After, d.Before))
	case event.Verify:
		var details []string
		if !d.Passed {
			details = append(details, fmt.Sprintf("exit code %d", d.ExitCode))
		}
		p.result(d.Passed, "check", d.Command, append(details, took(d.DurationMS))...)
		p.reason(d.Output)
	case event.ProcessingEnd:
		p.endAnswer(e.AgentID)
		if e.AgentID != "" && d.Status != string(agent.StatusCompleted) {
			line("fail", "ended: "+strings.ReplaceAll(d.Status, "_", " "))
		}
	case event.ModeChanged:
		line("note", "mode "+d.Mode)
	case event.PlanUpdated:
		text, _, _ := strings.Cut(d.Recite(), "\n")
		line("plan", strings.TrimPrefix(text, "Plan "))
	case event.LoopDetection:
		line("note", "the model repeats itself and got a warning")
	case event.Warning:
		line("note", d.Message)
	case event.Gap:
		line("note", fmt.Sprintf("%d events are not shown", d.Missed))
	}
}

// endAnswer removes the text that a model was writing.
func (p *progress) endAnswer(agentID string) {
	if agentID == "" {
		p.answer = tail{}
	}
}

// say shows the text of a model before its calls: on a terminal in several rows.
func (p *progress) say(text string) {
	if p.tty == nil {
		p.line("say", text)
		return
	}
	rows := textRows(strings.TrimSpace(text), p.room())
	p.line("say", rows[0])
	p.rows("      ", rows[1:], shownLines)
}

func (p *progress) addOutput(agentID string, d event.ToolOutputDelta) {
	if p.tty == nil {
		return
	}
	for _, c := range p.running {
		if c.agent == agentID && c.CallID == d.CallID {
			c.output.add(d.Text)
			return
		}
	}
}

// takeRunning removes the call that has ended from those that run. Without its start it is empty.
func (p *progress) takeRunning(agentID string, d event.ToolCallEnd) *runningCall {
	for i, c := range p.running {
		if c.agent == agentID && c.CallID == d.CallID && c.Name == d.Name {
			p.running = slices.Delete(p.running, i, i+1)
			return c
		}
	}
	return &runningCall{}
}

func (p *progress) toolEnded(agentID string, d event.ToolCallEnd) {
	c := p.takeRunning(agentID, d)
	var details []string
	if d.IsError {
		details = append(details, d.ErrorKind)
	}
	details = append(details, took(d.DurationMS))
	if n := c.output.lines(); n > 0 {
		details = append(details, count(n, "line"))
	}
	p.result(!d.IsError, by(agentID, d.Name), subject(c.Arguments), details...)
	switch {
	case p.outputs > 0:
		p.rows("      | ", strings.Split(strings.TrimRight(sanitize(d.Result), "\n"), "\n"), p.outputs)
	case d.IsError:
		p.reason(d.Result)
	}
	if p.tty != nil && !d.IsError && len(d.Changes) > 0 {
		p.diff(editedLines(c.Arguments))
	}
	if len(p.running) > 0 {
		p.do(p.running[len(p.running)-1].String())
	}
}

// reason writes the end of the result of a failed call or check, which has the reason.
func (p *progress) reason(result string) {
	if result = strings.TrimSpace(result); result != "" {
		p.rows("      | ", lastOf(textRows(result, p.room()-2), reasonLines), reasonLines)
	}
}

func (p *progress) do(what string) { p.doing, p.since = what, p.now() }

// doOnce is do, but does not restart the time of the same activity.
func (p *progress) doOnce(what string) {
	if p.doing != what {
		p.do(what)
	}
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func seconds(d time.Duration) string { return d.Truncate(time.Second).String() }
