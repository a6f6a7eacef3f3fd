package main

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// Formats of the standard output of run.
const (
	formatText   = "text"
	formatJSON   = "json"
	formatStream = "stream-json"
)

// report writes the standard output of run: the last answer, one result record, or all events with
// the record as the last.
type report struct {
	format string
	out    io.Writer
	enc    *event.Encoder
	last   event.Event
	// still means that the record has the time of the last event.
	still bool
}

func newReport(format string, out io.Writer) (*report, error) {
	switch format {
	case formatText, formatJSON, formatStream:
		return &report{format: format, out: out, enc: event.NewEncoder(out)}, nil
	}
	return nil, usagef("--output: %q is not one of %s, %s, %s", format, formatText, formatJSON,
		formatStream)
}

// event writes an event of the run. Calls are sequential.
func (r *report) event(e event.Event) error {
	if r.format != formatStream {
		return nil
	}
	r.last = e
	r.last.Data = nil
	return r.enc.Encode(e)
}

// finish writes the record, or the answer if the text of the record is one.
func (r *report) finish(record event.Result, answered bool) error {
	switch r.format {
	case formatJSON:
		return json.NewEncoder(r.out).Encode(record)
	case formatStream:
		e := r.last
		e.Seq, e.Data = e.Seq+1, record
		if !r.still {
			e.Time = time.Now()
		}
		return r.enc.Encode(e)
	}
	text := record.Text
	if text == "" || !answered {
		return nil
	}
	if terminal(r.out) != nil {
		text = sanitize(text) // which handles a carriage return as a terminal does
	}
	if text[len(text)-1] != '\n' {
		text += "\n"
	}
	_, err := io.WriteString(r.out, text)
	return err
}

// failed writes the record of a run that did not start. patch is the file of its empty patch; may
// be empty.
func (r *report) failed(ctx context.Context, patch string, err error) {
	if r.format == formatText {
		return
	}
	status := statusOf(ctx, err, agent.StatusEnvironmentError)
	record := event.Result{
		Status: string(status), ExitCode: runCode(ctx, status), Error: err.Error(), Patch: patch,
	}
	_ = r.finish(record, false) // standard error gets err too
}
