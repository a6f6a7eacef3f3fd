package exchange

import (
	"bytes"
	"fmt"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// Bounds of an answer beside those of package llm. A model writes far less.
const (
	// maxEvent bounds one event in bytes.
	maxEvent = 16 << 20
	// maxValues bounds the JSON values of one event: decoded, a value of two bytes takes a hundred.
	maxValues = 1 << 18
	// maxParts bounds the texts, the pieces of reasoning and the opaque parts of an answer, each of
	// which takes some hundred bytes beside its content.
	maxParts = 1 << 14
	// maxErrorBody bounds what is read of an answer that is not a stream, in bytes.
	maxErrorBody = 64 << 10
)

// meter counts what the receiver of an answer holds, as llm.Assembler does. Its zero value is
// ready.
type meter struct {
	// arguments are the lengths of the arguments by Delta.Index.
	arguments map[int]int
	parts     int
	// growing is the kind of deltas that continue the last part.
	growing llm.DeltaKind
}

// add counts a delta. Of one beyond a bound it returns a text that names the bound, and its error.
func (m *meter) add(d llm.Delta) (string, error) {
	switch d.Kind {
	case llm.DeltaText, llm.DeltaReasoning:
		if d.Kind != m.growing {
			m.parts++
		}
		m.growing = d.Kind
	case llm.DeltaPart:
		m.parts++
		m.growing = ""
	case llm.DeltaToolCall, llm.DeltaArguments:
		return m.call(d)
	}
	if m.parts > maxParts {
		return fmt.Sprintf("the answer has more than %d parts", maxParts), llm.ErrAnswerTooLarge
	}
	return "", nil
}

func (m *meter) call(d llm.Delta) (string, error) {
	length, known := m.arguments[d.Index]
	if !known {
		m.growing = ""
		if m.arguments == nil {
			m.arguments = make(map[int]int)
		}
	}
	length += len(d.Text)
	if d.Call != nil {
		length += len(d.Call.Arguments)
	}
	m.arguments[d.Index] = length
	switch {
	case len(m.arguments) > llm.MaxToolCalls:
		return fmt.Sprintf("the answer has more than %d tool calls", llm.MaxToolCalls),
			llm.ErrTooManyToolCalls
	case length > llm.MaxArguments:
		return fmt.Sprintf("the arguments of a tool call are longer than %d MiB",
			llm.MaxArguments>>20), llm.ErrArgumentsTooLarge
	}
	return "", nil
}

// hasMoreValues reports whether a JSON text has more than limit values. It counts the starts of
// objects and lists, and their commas, so an empty one counts as a value more.
func hasMoreValues(data []byte, limit int) bool {
	if len(data) <= limit {
		return false
	}
	count := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '"':
			i += stringLength(data[i+1:])
		case ',', '[', '{':
			if count++; count > limit {
				return true
			}
		}
	}
	return false
}

// stringLength returns the length of the JSON string at the start of data, after its first quote,
// with its last one; that of data if the string has no end.
func stringLength(data []byte) int {
	end := 0
	for {
		next := bytes.IndexAny(data[end:], `"\`)
		switch {
		case next < 0:
			return len(data)
		case data[end+next] == '"':
			return end + next + 1
		}
		if end += next + 2; end >= len(data) {
			return len(data)
		}
	}
}
