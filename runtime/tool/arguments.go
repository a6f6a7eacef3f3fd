package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

const (
	// MaxArguments is the largest size of the arguments of a call, in bytes.
	MaxArguments = llm.MaxArguments
	// maxNesting is the largest depth of nested arguments.
	maxNesting = 64
	// maxProblems bounds the violations of a schema that a result lists.
	maxProblems = 5
)

// parseArguments returns the validated arguments of a call of t, with aliases renamed. Errors are
// of KindValidation, and short however long the arguments are.
func parseArguments(
	t Tool, schema func() (*argumentSchema, error), text string,
) (json.RawMessage, *Error) {
	text = strings.TrimSpace(text)
	if text == "" {
		text = "{}"
	}
	if len(text) > MaxArguments {
		return nil, errorf(KindValidation, "the arguments are %d bytes long, but at most %d are "+
			"allowed; split the work into several calls", len(text), MaxArguments)
	}
	raw := json.RawMessage(text)
	doc, err := decode(raw)
	if err != nil {
		return nil, errorf(KindValidation, "the arguments %w", err)
	}
	object, ok := doc.(map[string]any)
	if !ok {
		return nil, errorf(KindValidation, "the arguments must be a JSON object with the parameters "+
			"of %s as its keys", t.Name)
	}
	if err := sameInAnyCase(object); err != nil {
		return nil, errorf(KindValidation, "the arguments %w", err)
	}
	if renamed := rename(object, t.Aliases); renamed {
		if raw, err = json.Marshal(object); err != nil {
			return nil, errorf(KindValidation, "the arguments %w", err)
		}
	}
	compiled, err := schema()
	if err != nil {
		return nil, errorf(KindOther, "%w", err)
	}
	if err := compiled.validate(object); err != nil {
		return nil, errorf(KindValidation, "the arguments do not fit %s:\n%w", t.Name, err)
	}
	return raw, nil
}

// sameInAnyCase rejects keys that differ only in case. Package json decodes both into the same
// field of a struct, so the tool could run with another value than the validated one.
func sameInAnyCase(object map[string]any) error {
	seen := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(object)) {
		folded := strings.ToLower(key)
		if other, ok := seen[folded]; ok {
			return fmt.Errorf("hold the keys %s and %s, which differ only in case", shown(other), shown(key))
		}
		seen[folded] = key
	}
	return nil
}

func rename(object map[string]any, aliases map[string]string) bool {
	renamed := false
	for _, alias := range slices.Sorted(maps.Keys(aliases)) {
		v, given := object[alias]
		if _, taken := object[aliases[alias]]; given && !taken {
			object[aliases[alias]] = v
			delete(object, alias)
			renamed = true
		}
	}
	return renamed
}

// decode decodes one JSON value. It rejects repeated keys, which two decoders may understand
// differently, and numbers so long that computing with them is an attack.
func decode(raw json.RawMessage) (any, error) {
	var check json.RawMessage
	if err := json.Unmarshal(raw, &check); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("are not valid JSON: after %d of %d bytes: %s", syntax.Offset, len(raw),
				err.Error())
		}
		return nil, fmt.Errorf("are not valid JSON: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return decodeValue(d, 0)
}

// decodeValue decodes the next value of valid JSON, for which Token returns no error.
func decodeValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("are nested more than %d levels deep", maxNesting)
	}
	token, _ := d.Token()
	switch v := token.(type) {
	case json.Delim:
		if v == '{' {
			return decodeObject(d, depth)
		}
		list := []any{}
		for d.More() {
			item, err := decodeValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, item)
		}
		_, _ = d.Token() // the closing bracket
		return list, nil
	case json.Number:
		// The validation computes exactly, so an exponent of nine digits would exhaust the memory.
		exponent := strings.IndexAny(v.String(), "eE")
		if len(v) > 40 || exponent >= 0 && len(v)-exponent > len("e-100") {
			return nil, fmt.Errorf("hold the number %s, which is out of range", cutRunes(v.String(), 40))
		}
	}
	return token, nil
}

func decodeObject(d *json.Decoder, depth int) (any, error) {
	object := map[string]any{}
	for d.More() {
		token, _ := d.Token()
		key, _ := token.(string)
		if _, repeated := object[key]; repeated {
			return nil, fmt.Errorf("hold the key %s twice in one object", shown(key))
		}
		value, err := decodeValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		object[key] = value
	}
	_, _ = d.Token() // the closing brace
	return object, nil
}

// integer is a whole number as JSON Schema understands it, where 10.0 is one.
type integer int64

// UnmarshalJSON accepts every form of a whole number.
func (i *integer) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		f, ferr := strconv.ParseFloat(string(b), 64)
		if ferr != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
			return fmt.Errorf("%s is not a whole number in range", cutRunes(string(b), 40))
		}
		n = int64(f)
	}
	*i = integer(n)
	return nil
}
