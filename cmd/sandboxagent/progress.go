package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// redrawEvery is the least time between two changes of the status line.
const redrawEvery = 250 * time.Millisecond

// progress writes the progress of a run to standard error: a line for each finished tool call and,
// on a terminal, a status line below them. Elsewhere it writes lines only, without control
// characters. What it writes of a text has passed row. It is safe for concurrent use.
type progress struct {
	w io.Writer
	// tty is the terminal of the status line; may be nil.
	tty    *os.File
	colour bool
	// outputs shows the results of tools, too.
	outputs bool
	now     func() time.Time
	stop    chan struct{}
	stopped sync.WaitGroup

	mu      sync.Mutex
	started time.Time
	doing   string
	since   time.Time
	// running are the unfinished tool calls.
	running []runningCall
	tokens  int64
	drawn   string
	paused  bool
	closed  bool
	// held are the lines of a pause.
	held bytes.Buffer
}

// runningCall is a tool call of the agent with that ID.
type runningCall struct {
	agent string
	event.ToolCallStart
}

func (c runningCall) String() string { return by(c.agent, c.Name+" "+subject(c.Arguments)) }

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
	if tty := terminal(w); tty != nil && os.Getenv("TERM") != "dumb" && runtime.GOOS != "windows" {
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
// time afterwards.
func (p *progress) pause(fn func()) {
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

// out returns the writer of lines.
func (p *progress) out() io.Writer {
	if p.paused {
		return &p.held
	}
	return p.w
}

// notify writes a line of the program.
func (p *progress) notify(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line("note", text)
}

// stopping shows on a terminal that the run is ending.
func (p *progress) stopping() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tty != nil {
		p.do("stopping")
		p.line("note", "stopping; ^C again kills")
	}
}

// observe shows an event.
func (p *progress) observe(e event.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := func(tag, text string) { p.line(tag, by(e.AgentID, text)) }
	switch d := e.Data.(type) {
	case event.SessionStart:
		if e.AgentID != "" {
			line("", fmt.Sprintf("starts: %s in %s", d.Model, d.WorkDir))
			return
		}
		line("", fmt.Sprintf("session %s: %s on %s, %s, %s", e.SessionID, d.Model, d.Backend,
			sandboxWord(d.Guarantees), d.WorkDir))
	case event.Status:
		switch agent.State(d.To) {
		case agent.StateModelRunning:
			p.do(by(e.AgentID, "waiting for the model"))
		case agent.StateReflecting:
			p.do(by(e.AgentID, "checking the work"))
		}
	case event.ReasoningDelta:
		p.doOnce(by(e.AgentID, "thinking"))
	case event.TextDelta:
		p.doOnce(by(e.AgentID, "answering"))
	case event.TextEnd:
		p.tokens += d.Usage.Total()
		if d.ToolCalls > 0 && strings.TrimSpace(d.Text) != "" {
			line("say", d.Text)
		}
	case event.ToolCallStart:
		c := runningCall{e.AgentID, d}
		p.running = append(p.running, c)
		p.do(c.String())
	case event.ToolCallEnd:
		p.toolEnded(e.AgentID, d)
	case event.Retry:
		line("retry", fmt.Sprintf("in %s, attempt %d: %s", shortDuration(milliseconds(d.DelayMS)),
			d.Attempt, d.Error))
		p.do(by(e.AgentID, "waiting to try again"))
	case event.Verify:
		p.result(d.Passed, "check", d.Command, milliseconds(d.DurationMS), fmt.Sprintf("exit code %d",
			d.ExitCode))
	case event.ProcessingEnd:
		if e.AgentID != "" && d.Status != string(agent.StatusCompleted) {
			line("fail", "ended: "+strings.ReplaceAll(d.Status, "_", " "))
		}
	case event.LoopDetection:
		line("note", "the model repeats itself and got a warning")
	case event.Warning:
		line("note", d.Message)
	case event.Gap:
		line("note", fmt.Sprintf("%d events are not shown", d.Missed))
	}
}

func (p *progress) toolEnded(agentID string, d event.ToolCallEnd) {
	about := ""
	for i, c := range p.running {
		if c.agent == agentID && c.CallID == d.CallID && c.Name == d.Name {
			about = subject(c.Arguments)
			p.running = append(p.running[:i:i], p.running[i+1:]...)
			break
		}
	}
	p.result(!d.IsError, by(agentID, d.Name), about, milliseconds(d.DurationMS), d.ErrorKind)
	if p.outputs {
		p.show(d.Result)
	}
	if len(p.running) > 0 {
		p.do(p.running[len(p.running)-1].String())
	}
}

// shownLines is the number of shown lines of a tool result.
const shownLines = 12

// show writes the first lines of an output.
func (p *progress) show(output string) {
	p.clear()
	lines := strings.Split(strings.TrimRight(sanitize(output), "\n"), "\n")
	for i, line := range lines {
		if i == shownLines {
			p.write("      | ", fmt.Sprintf("… %d more lines", len(lines)-i), p.room()-2, "\n")
			break
		}
		p.write("      | ", line, p.room()-2, "\n")
	}
}

// result writes the line of a finished call or check.
func (p *progress) result(ok bool, name, about string, d time.Duration, problem string) {
	tag, after := "ok", shortDuration(d)
	if !ok {
		tag, after = "fail", problem+", "+after
	}
	name, after = oneLine(name), " ("+after+")"
	about = cut(oneLine(about), max(p.room()-len(name)-len(after)-1, 8))
	p.line(tag, name+" "+about+after)
}

// line writes a line above the status line, cut to the width of a terminal.
func (p *progress) line(tag, text string) {
	if p.closed {
		return
	}
	p.clear()
	colour, end := "", ""
	if p.colour {
		switch tag {
		case "ok":
			colour, end = "\x1b[32m", "\x1b[0m"
		case "fail", "retry":
			colour, end = "\x1b[31m", "\x1b[0m"
		}
	}
	p.write(fmt.Sprintf("%s%-5s%s ", colour, tag, end), oneLine(text), p.room(), "\n")
	p.draw()
}

// write writes a text of any origin, cleaned and cut to a width, between two texts of the display,
// which may have control sequences.
func (p *progress) write(before, text string, width int, after string) {
	_, _ = io.WriteString(p.out(), before+cut(row(text), width)+after) // an error has no other output
}

func (p *progress) do(what string) { p.doing, p.since = what, p.now() }

// doOnce is do, but does not restart the time of the same activity.
func (p *progress) doOnce(what string) {
	if p.doing != what {
		p.do(what)
	}
}

// draw writes the status line if it has changed.
func (p *progress) draw() {
	if p.tty == nil || p.paused || p.closed {
		return
	}
	now := p.now()
	text := oneLine(p.doing)
	if n := len(p.running); n > 1 {
		text += fmt.Sprintf(" (and %d more)", n-1)
	}
	tail := fmt.Sprintf(" · %s · %s in all", seconds(now.Sub(p.since)), seconds(now.Sub(p.started)))
	if p.tokens > 0 {
		tail += fmt.Sprintf(" · %s tokens", shortCount(p.tokens))
	}
	width := p.width() - 1
	text = cut(text, max(width-len([]rune(tail))-2, 8))
	s := cut("> "+text+tail, width)
	if s == p.drawn {
		return
	}
	p.drawn = s
	p.write("\r\x1b[K", s, width, "")
}

// clear removes the status line.
func (p *progress) clear() {
	if p.drawn != "" {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = ""
	}
}

// room returns the width of a line after its tag.
func (p *progress) room() int {
	if p.tty == nil {
		return 400
	}
	return p.width() - 7
}

func (p *progress) width() int {
	if w, _, err := term.GetSize(int(p.tty.Fd())); err == nil && w > 20 {
		return w
	}
	return 80
}

// summary writes the last line of a run.
func (p *progress) summary(r event.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.line("end", fmt.Sprintf("%s: %d model calls, %d tool calls, %s tokens, %s",
		strings.ReplaceAll(r.Status, "_", " "),
		r.ModelCalls, r.ToolCalls, shortCount(r.Usage.Total()),
		shortDuration(milliseconds(r.DurationMS))))
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func seconds(d time.Duration) string { return d.Truncate(time.Second).String() }
