package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"
	"unicode/utf8"
)

// line is the JSON format of an event: one object on one line.
type line struct {
	Type      Kind            `json:"type"`
	Seq       int64           `json:"seq"`
	Time      time.Time       `json:"time"`
	SessionID string          `json:"session_id,omitempty"`
	RunID     string          `json:"run_id,omitempty"`
	AgentID   string          `json:"agent_id,omitempty"`
	ParentID  string          `json:"parent_id,omitempty"`
	Data      json.RawMessage `json:"data"`
}

// toolCallEndJSON is the JSON format of ToolCallEnd, with the text of the output or its file.
type toolCallEndJSON struct {
	toolCallEndFields
	Output       *string `json:"output,omitempty"`
	OutputBase64 []byte  `json:"output_base64,omitempty"`
	OutputFile   string  `json:"output_file,omitempty"`
	OutputSize   int64   `json:"output_size"`
	OutputSHA256 string  `json:"output_sha256,omitempty"`
}

type toolCallEndFields ToolCallEnd

// MarshalJSON encodes an output in memory as "output", and another one by the path of its file as
// "output_file". For invalid UTF-8, "output" has U+FFFD and "output_base64" the exact bytes.
func (d ToolCallEnd) MarshalJSON() ([]byte, error) {
	j := toolCallEndJSON{
		toolCallEndFields: toolCallEndFields(d),
		OutputFile:        d.Output.File, OutputSize: d.Output.Size, OutputSHA256: d.Output.SHA256,
	}
	if int64(len(d.Output.Inline)) == d.Output.Size {
		text := string(bytes.ToValidUTF8(d.Output.Inline, []byte(string(utf8.RuneError))))
		j.Output = &text
		if !utf8.Valid(d.Output.Inline) {
			j.OutputBase64 = d.Output.Inline
		}
	}
	return json.Marshal(j)
}

// UnmarshalJSON decodes the format of MarshalJSON. An output in a file cannot be opened.
func (d *ToolCallEnd) UnmarshalJSON(b []byte) error {
	var j toolCallEndJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*d = ToolCallEnd(j.toolCallEndFields)
	d.Output = Output{Size: j.OutputSize, SHA256: j.OutputSHA256, File: j.OutputFile}
	switch {
	case j.OutputBase64 != nil:
		d.Output.Inline = j.OutputBase64
	case j.Output != nil:
		d.Output.Inline = []byte(*j.Output)
	}
	return nil
}

// MarshalJSON encodes the event as one object with "type", "seq", "time", "session_id", "run_id",
// "agent_id", "parent_id" and "data".
func (e Event) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(e.Data)
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", e.Kind(), err)
	}
	return json.Marshal(line{
		Type: e.Kind(), Seq: e.Seq, Time: e.Time, SessionID: e.SessionID, RunID: e.RunID,
		AgentID: e.AgentID, ParentID: e.ParentID,
		Data: data,
	})
}

// UnmarshalJSON decodes the format of MarshalJSON. An unknown type is an error.
func (e *Event) UnmarshalJSON(b []byte) error {
	var l line
	if err := json.Unmarshal(b, &l); err != nil {
		return err
	}
	data, err := decodeData(l.Type, l.Data)
	if err != nil {
		return err
	}
	*e = Event{
		Seq: l.Seq, Time: l.Time, SessionID: l.SessionID, RunID: l.RunID,
		Origin: Origin{AgentID: l.AgentID, ParentID: l.ParentID}, Data: data,
	}
	return nil
}

func decodeData(kind Kind, raw json.RawMessage) (Data, error) {
	switch kind {
	case KindSessionStart:
		return decode[SessionStart](raw)
	case KindSessionEnd:
		return decode[SessionEnd](raw)
	case KindUserInput:
		return decode[UserInput](raw)
	case KindProcessingEnd:
		return decode[ProcessingEnd](raw)
	case KindTextStart:
		return decode[TextStart](raw)
	case KindTextDelta:
		return decode[TextDelta](raw)
	case KindTextEnd:
		return decode[TextEnd](raw)
	case KindReasoningDelta:
		return decode[ReasoningDelta](raw)
	case KindToolArgumentsDelta:
		return decode[ToolArgumentsDelta](raw)
	case KindToolCallStart:
		return decode[ToolCallStart](raw)
	case KindToolOutputDelta:
		return decode[ToolOutputDelta](raw)
	case KindToolCallEnd:
		return decode[ToolCallEnd](raw)
	case KindSteeringInjected:
		return decode[SteeringInjected](raw)
	case KindTurnLimit:
		return decode[TurnLimit](raw)
	case KindLoopDetection:
		return decode[LoopDetection](raw)
	case KindStatus:
		return decode[Status](raw)
	case KindPermissionAsked:
		return decode[PermissionAsked](raw)
	case KindPermissionReplied:
		return decode[PermissionReplied](raw)
	case KindModeChanged:
		return decode[ModeChanged](raw)
	case KindPlanUpdated:
		return decode[PlanUpdated](raw)
	case KindContextUpdated:
		return decode[ContextUpdated](raw)
	case KindRetry:
		return decode[Retry](raw)
	case KindVerify:
		return decode[Verify](raw)
	case KindFailure:
		return decode[FailureSignal](raw)
	case KindWarning:
		return decode[Warning](raw)
	case KindError:
		return decode[Error](raw)
	case KindGap:
		return decode[Gap](raw)
	case KindResult:
		return decode[Result](raw)
	}
	return nil, fmt.Errorf("event: unknown type %q", kind)
}

func decode[T Data](raw json.RawMessage) (Data, error) {
	var d T
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, fmt.Errorf("event %s: %w", d.Kind(), err)
	}
	return d, nil
}

// Encoder writes events as lines of JSON. It is safe for concurrent use.
type Encoder struct {
	mu sync.Mutex
	w  io.Writer
}

// NewEncoder returns an Encoder that writes to w.
func NewEncoder(w io.Writer) *Encoder { return &Encoder{w: w} }

// Encode writes e as one line, in one call of Write.
func (c *Encoder) Encode(e Event) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err = c.w.Write(append(b, '\n'))
	return err
}
