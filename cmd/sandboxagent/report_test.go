package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

func TestReport(t *testing.T) {
	record := event.Result{Status: "completed", Text: "a\x1b[31m\u0085b"}
	tests := []struct{ format, want string }{
		{formatText, "a\x1b[31m\u0085b\n"}, // not a terminal: as it is
		{formatJSON, `{"status":"completed",`},
		{formatStream, `{"type":"session_start","seq":7,`},
	}
	for _, tt := range tests {
		t.Run(tt.format, func(t *testing.T) {
			var out bytes.Buffer
			r, err := newReport(tt.format, &out)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.event(event.Event{Seq: 7, SessionID: "s", Data: event.SessionStart{}}); err != nil {
				t.Fatal(err)
			}
			if err := r.finish(record, true); err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(out.String(), tt.want) {
				t.Errorf("got %q", out.String())
			}
			if tt.format != formatStream {
				return
			}
			var last event.Event
			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
				t.Fatal(err)
			}
			if last.Seq != 8 || last.SessionID != "s" || last.Kind() != event.KindResult {
				t.Errorf("the last event is %+v", last)
			}
		})
	}
}

// TestReportWithoutAnswer checks that the text of a run that was cut off is in the record only.
func TestReportWithoutAnswer(t *testing.T) {
	for _, tt := range []struct{ format, want string }{
		{formatText, ""}, {formatJSON, `"text":"I look."`}, {formatStream, `"text":"I look."`},
	} {
		var out bytes.Buffer
		r, err := newReport(tt.format, &out)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.finish(event.Result{Status: "aborted", Text: "I look."}, false); err != nil {
			t.Fatal(err)
		}
		if tt.want == "" && out.Len() > 0 || !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: %q", tt.format, out.String())
		}
	}
}

func TestReportFailed(t *testing.T) {
	tests := []struct {
		name  string
		err   error
		cause error
		want  string
	}{
		{"usage", usagef("no model"), nil, `"status":"usage_error","exit_code":2,"error":"no model"`},
		{
			"environment", errors.New("gone"), nil,
			`"status":"environment_error","exit_code":6,"error":"gone"`,
		},
		{
			"interrupted", interrupted, interrupted,
			`"status":"aborted","exit_code":130,"error":"interrupted"`,
		},
		{
			"time", errors.New("late"), agent.ErrTimeLimit,
			`"status":"timed_out","exit_code":124,"error":"late"`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			r, err := newReport(formatStream, &out)
			if err != nil {
				t.Fatal(err)
			}
			r.failed(ended(t, tt.cause), "", tt.err)
			if !strings.Contains(out.String(), tt.want) {
				t.Errorf("got %s", out.String())
			}
		})
	}
}
