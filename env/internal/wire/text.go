package wire

import (
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// Text is a string of any bytes. In JSON it is a string if it is valid UTF-8, and otherwise an
// object with the bytes in base64. So is a long string whose escapes would more than double its
// size, which bounds the JSON of a text of known length.
type Text string

// longText is the length from which escapes matter.
const longText = 1 << 10

type bytesText struct {
	Base64 *[]byte `json:"base64"`
}

// MarshalJSON implements json.Marshaler.
func (t Text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		encoded, err := json.Marshal(string(t))
		if err != nil || len(t) < longText || len(encoded) <= 2*len(t) {
			return encoded, err
		}
	}
	b := []byte(t)
	return json.Marshal(bytesText{&b})
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Text) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		var s string
		err := json.Unmarshal(data, &s)
		*t = Text(s)
		return err
	}
	var b bytesText
	if err := json.Unmarshal(data, &b); err != nil {
		return err
	}
	if b.Base64 == nil {
		return errors.New("neither a string nor bytes in base64")
	}
	*t = Text(*b.Base64)
	return nil
}

// Texts converts strings to Text.
func Texts(list []string) []Text {
	if list == nil {
		return nil
	}
	out := make([]Text, len(list))
	for i, s := range list {
		out[i] = Text(s)
	}
	return out
}

// Strings converts Text to strings.
func Strings(list []Text) []string {
	if list == nil {
		return nil
	}
	out := make([]string, len(list))
	for i, t := range list {
		out[i] = string(t)
	}
	return out
}
