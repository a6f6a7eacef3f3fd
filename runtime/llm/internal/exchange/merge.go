package exchange

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// OptionsPatch returns the options of a request as patches of its body; none without options.
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

// mergePatches returns target with the patches merged in, in order, as RFC 7396 defines. Values
// that no patch changes stay as written, but the fields of a changed object are sorted by name.
func mergePatches(target json.RawMessage, patches ...json.RawMessage) (json.RawMessage, error) {
	fields, ok, err := object(target)
	if err != nil {
		return nil, err
	}
	for _, patch := range patches {
		changes, merges, err := object(patch)
		if err != nil {
			return nil, err
		}
		if !merges {
			target, ok, fields = patch, false, nil
			continue
		}
		if !ok {
			ok, fields = true, make(map[string]json.RawMessage)
		}
		for name, change := range changes {
			if string(change) == "null" {
				delete(fields, name)
				continue
			}
			if fields[name], err = mergePatches(fields[name], change); err != nil {
				return nil, err
			}
		}
	}
	if !ok {
		return target, nil
	}
	return join(fields)
}

// join writes an object. Package json would read and copy its fields, which are JSON already, once
// more, and bodies are long.
func join(fields map[string]json.RawMessage) (json.RawMessage, error) {
	size := 2
	for name, value := range fields {
		size += len(name) + len(value) + 4
	}
	out := append(make(json.RawMessage, 0, size), '{')
	for i, name := range slices.Sorted(maps.Keys(fields)) {
		if i > 0 {
			out = append(out, ',')
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, key...), ':'), fields[name]...)
	}
	return append(out, '}'), nil
}

// object returns the fields of a JSON object; false for another value or none.
func object(data json.RawMessage) (map[string]json.RawMessage, bool, error) {
	if len(data) == 0 || data[0] != '{' {
		return nil, false, nil
	}
	var fields map[string]json.RawMessage
	err := json.Unmarshal(data, &fields)
	return fields, err == nil, err
}
