package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// out returns the writer of lines.
func (p *progress) out() io.Writer {
	if p.paused {
		return &p.held
	}
	return p.w
}

const (
	// shownLines bounds the shown rows of a text, diffLines those of an edit.
	shownLines, diffLines = 12, 6
	// reasonLines is the number of rows at the end of a result that show why a call failed.
	reasonLines = 4
	// shownFiles bounds the files in the summary.
	shownFiles = 20
)

// rows writes the first rows of a text, at most most, each after the text before.
func (p *progress) rows(before string, rows []string, most int) {
	p.clear()
	for i, text := range rows {
		if i == most {
			text = "… " + count(len(rows)-i, "more line")
		}
		if i <= most {
			p.write(before, text, p.room()+6-len(before), "\n")
		}
	}
}

// diff writes the first lines of an edit.
func (p *progress) diff(lines []string) {
	p.clear()
	for _, text := range lines[:min(len(lines), diffLines)] {
		colour := red
		if text[0] == '+' {
			colour = green
		}
		before, after := p.paint(colour)
		p.write("      "+before, strings.TrimRight(text, "\r\n"), p.room(), after+"\n")
	}
	if more := len(lines) - diffLines; more > 0 {
		p.write("      ", "… "+count(more, "more line"), p.room(), "\n")
	}
}

// result writes the line of a finished call or check, with details behind it.
func (p *progress) result(ok bool, name, about string, details ...string) {
	tag, after := "ok", " ("+strings.Join(details, ", ")+")"
	if !ok {
		tag = "fail"
	}
	name = oneLine(name)
	about = cut(oneLine(about), max(p.room()-len(name)-len(after)-1, 8))
	p.line(tag, name+" "+about+after)
}

const red, green = "31", "32"

// paint returns the control sequences around a text of a colour.
func (p *progress) paint(colour string) (before, after string) {
	if !p.colour || colour == "" {
		return "", ""
	}
	return "\x1b[" + colour + "m", "\x1b[0m"
}

// line writes a line, cut to the width of a terminal. The caller draws the status line again.
func (p *progress) line(tag, text string) {
	p.clear()
	colour := map[string]string{"ok": green, "fail": red, "retry": red}[tag]
	before, after := p.paint(colour)
	p.write(fmt.Sprintf("%s%-5s%s ", before, tag, after), oneLine(text), p.room(), "\n")
}

// write writes a text of any origin, cleaned and cut to a width, between two texts of the display,
// which may have control sequences.
func (p *progress) write(before, text string, width int, after string) {
	if !p.closed {
		_, _ = io.WriteString(p.out(), before+cut(row(text), width)+after) // an error has no other output
	}
}

// draw writes the status line and the rows below it if they have changed.
func (p *progress) draw() {
	if p.tty == nil || p.paused || p.closed {
		return
	}
	width := p.width() - 1
	var rows []string
	if p.table != nil {
		rows = p.table(width)
	} else {
		rows = append([]string{p.status(width)}, p.written(width)...)
	}
	if slices.Equal(rows, p.drawn) {
		return
	}
	p.clear()
	p.drawn = rows
	for i, text := range rows {
		before := "\n"
		if i == 0 {
			before = "\r\x1b[K"
		}
		p.write(before, text, width, "")
	}
}

// status returns the status line.
func (p *progress) status(width int) string {
	now := p.now()
	text := oneLine(p.doing)
	if n := len(p.running); n > 1 {
		text += fmt.Sprintf(" (and %d more)", n-1)
	}
	end := fmt.Sprintf(" · %s · %s in all", seconds(now.Sub(p.since)), seconds(now.Sub(p.started)))
	if p.tokens > 0 {
		end += fmt.Sprintf(" · %s tokens", shortCount(p.tokens))
	}
	text = cut(text, max(width-len([]rune(end))-2, 8))
	return cut("> "+text+end, width)
}

// written returns the last rows of the answer, or else of the output of the newest call that has
// one.
func (p *progress) written(width int) []string {
	const before = "      | "
	most := min(max(p.height()/3, 1), shownLines)
	rows := p.answer.rows(width-len(before), most)
	for i := len(p.running) - 1; i >= 0 && rows == nil; i-- {
		rows = p.running[i].output.rows(width-len(before), most)
	}
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i] = before + rows[i]
	}
	return rows
}

// clear removes the status line and the rows below it.
func (p *progress) clear() {
	if len(p.drawn) > 0 {
		_, _ = io.WriteString(p.w, "\r\x1b[K"+strings.Repeat("\x1b[A\x1b[K", len(p.drawn)-1))
		p.drawn = nil
	}
}

// room returns the width of a line after its tag.
func (p *progress) room() int {
	if p.tty == nil {
		return 400
	}
	return p.width() - 7
}

// width and height return the size of the terminal.
func (p *progress) width() int {
	if w, _, err := term.GetSize(int(p.tty.Fd())); err == nil && w > 20 {
		return w
	}
	return 80
}

func (p *progress) height() int {
	if _, h, err := term.GetSize(int(p.tty.Fd())); err == nil && h > 0 {
		return h
	}
	return 24
}

// summary writes the last lines of a run.
func (p *progress) summary(r event.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	tokens := shortCount(r.Usage.Total()) + " tokens"
	if r.CostUSD != nil {
		tokens += fmt.Sprintf(" for $%.4g", *r.CostUSD)
	}
	p.line("end", fmt.Sprintf("%s: %s, %s, %s, %s", strings.ReplaceAll(r.Status, "_", " "),
		count(r.ModelCalls, "model call"), count(r.ToolCalls, "tool call"), tokens,
		took(r.DurationMS)))
	for i, c := range r.Changes {
		if i == shownFiles {
			p.line("", fmt.Sprintf("… and %s", count(len(r.Changes)-i, "more file")))
			break
		}
		lines, painted := "", ""
		for _, n := range []struct {
			sign, colour string
			lines        int
		}{{"+", green, c.Insertions}, {"-", red, c.Deletions}} {
			if n.lines > 0 {
				before, after := p.paint(n.colour)
				lines += fmt.Sprintf(" %s%d", n.sign, n.lines)
				painted += fmt.Sprintf(" %s%s%d%s", before, n.sign, n.lines, after)
			}
		}
		p.write(fmt.Sprintf("      %-8s ", row(string(c.Kind))), c.Path, p.room()-9-len(lines),
			painted+"\n")
	}
	if n := len(r.Refused); n > 0 {
		p.line("", count(n, "call")+" refused: "+refusals(r.Refused))
	}
	// Names are not cut, so that they can be copied.
	const long = 4096
	for _, named := range [][2]string{
		{"changes by commands are not listed: ", r.ChangesIncomplete},
		{"patch    ", r.Patch},
		{"journal  ", r.Journal},
	} {
		if named[1] != "" {
			p.write("      "+named[0], named[1], long, "\n")
		}
	}
}

// refusals returns the parts of calls that were refused, each once.
func refusals(list []event.Refusal) string {
	var subjects []string
	for _, r := range list {
		for _, part := range r.Parts {
			if text := part.Permission + " " + oneLine(part.Subject); !slices.Contains(subjects, text) {
				subjects = append(subjects, text)
			}
		}
	}
	return strings.Join(subjects, ", ")
}

// count returns a number of things.
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// took returns a time in milliseconds for people.
func took(n int64) string { return shortDuration(milliseconds(n)) }
