package exchange

import (
	"bytes"
	"encoding/json"
	"strings"
)

// ArgumentsObject returns the arguments of a call as Object does. Other arguments become an object
// with their text under name, so that the model sees it.
func ArgumentsObject(arguments, name string) json.RawMessage {
	if object, ok := Object(arguments); ok {
		return object
	}
	return MustJSON(map[string]string{name: arguments})
}

// MustJSON encodes a value whose encoding cannot fail, such as a string.
func MustJSON(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

// Object returns the arguments of a call as the JSON object that servers accept, as written if
// possible, and false for other arguments. Blank ones are an empty object. U+FFFD replaces invalid
// UTF-8 and halves of surrogate pairs, for which servers reject the whole conversation.
func Object(arguments string) (json.RawMessage, bool) {
	raw := []byte(strings.TrimSpace(strings.ToValidUTF8(arguments, "\ufffd")))
	switch {
	case len(raw) == 0:
		return json.RawMessage("{}"), true
	case raw[0] != '{' || !json.Valid(raw):
		return nil, false
	case !bytes.Contains(bytes.ToLower(raw), []byte(`\ud`)):
		return raw, true
	}
	// Decoding replaces the halves.
	var fields map[string]any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&fields); err != nil {
		return nil, false
	}
	raw, err := json.Marshal(fields)
	return raw, err == nil
}
