package llm

import (
	"context"
	"strings"
)

// Assembler makes one Response of the deltas of a stream. The zero value is ready. It is not safe
// for concurrent use.
//
// It ignores deltas after DeltaDone. DeltaRetry discards everything before it. Successive pieces of
// text make one part; a reasoning part of DeltaPart replaces the pieces of reasoning directly
// before it. Missing ids of tool calls stay empty.
//
// An answer that a limit or a filter cut (FinishLength, FinishContentFilter) has no tool calls: the
// last one may be incomplete, and half a call must not run.
type Assembler struct {
	parts []*piece
	// calls are the tool calls by Delta.Index.
	calls map[int]*piece
	done  *Done
}

// piece is a part that may still grow.
type piece struct {
	part Part
	text strings.Builder
	// whole is true for a part that came in one delta and does not grow.
	whole bool
}

// Add adds the next delta.
func (a *Assembler) Add(d Delta) {
	if a.done != nil {
		return
	}
	switch d.Kind {
	case DeltaText:
		a.grow(PartText, d.Text)
	case DeltaReasoning:
		a.grow(PartReasoning, d.Text)
	case DeltaToolCall:
		a.call(d.Index, d.Call)
	case DeltaArguments:
		a.call(d.Index, nil).text.WriteString(d.Text)
	case DeltaPart:
		a.whole(d.Part)
	case DeltaRetry:
		*a = Assembler{}
	case DeltaDone:
		a.done = &Done{}
		if d.Done != nil {
			*a.done = *d.Done
		}
	}
}

// grow appends text to the last part if it is of this kind and growing, else to a new part.
func (a *Assembler) grow(kind PartKind, text string) {
	if text == "" {
		return
	}
	last := a.lastPart()
	if last == nil || last.whole || last.part.Kind != kind {
		last = &piece{part: Part{Kind: kind}}
		a.parts = append(a.parts, last)
	}
	last.text.WriteString(text)
}

func (a *Assembler) lastPart() *piece {
	if len(a.parts) == 0 {
		return nil
	}
	return a.parts[len(a.parts)-1]
}

// call returns the piece of the tool call index, creates it if necessary, and fills in its missing
// fields.
func (a *Assembler) call(index int, call *ToolCall) *piece {
	p := a.calls[index]
	if p == nil {
		p = &piece{part: Part{Kind: PartToolCall, ToolCall: &ToolCall{}}}
		a.parts = append(a.parts, p)
		if a.calls == nil {
			a.calls = make(map[int]*piece)
		}
		a.calls[index] = p
	}
	if call != nil {
		first := p.part.ToolCall
		if first.ID == "" {
			first.ID = call.ID
		}
		if first.Name == "" {
			first.Name = call.Name
		}
		p.text.WriteString(call.Arguments)
	}
	return p
}

func (a *Assembler) whole(part *Part) {
	if part == nil {
		return
	}
	p := &piece{part: *part, whole: true}
	if last := a.lastPart(); part.Kind == PartReasoning && last != nil && !last.whole &&
		last.part.Kind == PartReasoning {
		a.parts[len(a.parts)-1] = p
		return
	}
	a.parts = append(a.parts, p)
}

// Response returns the answer. Before DeltaDone it returns an *Error of KindStream.
func (a *Assembler) Response() (Response, error) {
	if a.done == nil {
		return Response{}, &Error{Kind: KindStream, Message: "the answer ended before it was complete"}
	}
	cut := a.done.Finish == FinishLength || a.done.Finish == FinishContentFilter
	msg := Message{Role: RoleAssistant}
	for _, p := range a.parts {
		if cut && p.part.Kind == PartToolCall {
			continue
		}
		msg.Parts = append(msg.Parts, p.finished())
	}
	return Response{
		Message: msg, Finish: a.done.Finish, Usage: a.done.Usage, ResponseID: a.done.ResponseID,
		Model: a.done.Model,
	}, nil
}

// finished returns the part with its text. It does not change p.
func (p *piece) finished() Part {
	part := p.part
	if p.whole {
		return part
	}
	switch part.Kind {
	case PartText:
		part.Text = p.text.String()
	case PartReasoning:
		part.Reasoning = &Reasoning{Text: p.text.String()}
	case PartToolCall:
		call := *part.ToolCall
		call.Arguments = p.text.String()
		part.ToolCall = &call
	}
	return part
}

// Complete sends req and returns the whole answer. A stream that ends without DeltaDone is an
// *Error: KindCanceled if ctx has ended, else KindStream.
func Complete(ctx context.Context, c Client, req Request) (Response, error) {
	var a Assembler
	for d, err := range c.Stream(ctx, req) {
		if err != nil {
			return Response{}, err
		}
		a.Add(d)
	}
	resp, err := a.Response()
	if err != nil && ctx.Err() != nil {
		return Response{}, canceled(ctx)
	}
	return resp, err
}

// canceled returns the error of a request whose context has ended.
func canceled(ctx context.Context) *Error {
	return &Error{Kind: KindCanceled, Err: context.Cause(ctx)}
}
