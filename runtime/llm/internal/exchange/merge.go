package exchange

import (
	"encoding/json"
	"errors"
	"fmt"
)

// OptionsPatch returns the options of a request as patches of its body, none if there are no options.
func OptionsPatch(options map[string]any) ([]json.RawMessage, error) {
	if len(options) == 0 {
		return nil, nil
	}
	if _, ok := options["stream"]; ok {
		return nil, errors.New(`the option "stream" cannot be set`)
	}
	data, err := json.Marshal(options)
	if err != nil {
		return nil, fmt.Errorf("options: %w", err)
	}
	return []json.RawMessage{data}, nil
}

// ModelPatch returns the patch that sets the model of a request.
func ModelPatch(model string) ([]json.RawMessage, error) {
	data, err := json.Marshal(map[string]string{"model": model})
	if err != nil {
		return nil, err
	}
	return []json.RawMessage{data}, nil
}

// mergePatch returns target with patch merged in, as RFC 7396 says. Numbers keep their digits, and fields come in the
// order of their names.
func mergePatch(target, patch json.RawMessage) (json.RawMessage, error) {
	changes, ok, err := object(patch)
	if err != nil || !ok {
		return patch, err
	}
	fields, ok, err := object(target)
	if err != nil {
		return nil, err
	}
	if !ok {
		fields = make(map[string]json.RawMessage)
	}
	for name, change := range changes {
		if string(change) == "null" {
			delete(fields, name)
			continue
		}
		if fields[name], err = mergePatch(fields[name], change); err != nil {
			return nil, err
		}
	}
	return json.Marshal(fields)
}

// object returns the fields of a JSON object; false if data is some other value, or none.
func object(data json.RawMessage) (map[string]json.RawMessage, bool, error) {
	if len(data) == 0 || data[0] != '{' {
		return nil, false, nil
	}
	var fields map[string]json.RawMessage
	err := json.Unmarshal(data, &fields)
	return fields, err == nil, err
}
