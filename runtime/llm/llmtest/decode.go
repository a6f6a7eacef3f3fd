package llmtest

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// strict decodes data into v. It rejects unknown fields: those that are neither in v nor among
// unread, the fields of the API that no test needs.
func strict(data []byte, v any, unread ...string) error {
	var fields map[string]json.RawMessage
	if len(unread) > 0 && json.Unmarshal(data, &fields) == nil {
		for _, name := range unread {
			delete(fields, name)
		}
		data = mustJSON(fields)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("the body goes on after the JSON value")
	}
	return nil
}

// conversation collects messages, and verifies that each tool call has exactly one result.
type conversation struct {
	messages []llm.Message
	// open is the number of calls of an id without a result; names are the tools of all ids.
	open  map[string]int
	names map[string]string
}

// add appends a part. Consecutive parts of one role make one message, but for user messages.
func (c *conversation) add(role llm.Role, parts ...llm.Part) {
	if n := len(c.messages); role != llm.RoleUser && n > 0 && c.messages[n-1].Role == role {
		c.messages[n-1].Parts = append(c.messages[n-1].Parts, parts...)
		return
	}
	c.messages = append(c.messages, llm.Message{Role: role, Parts: parts})
}

// opaque adds reasoning in the provider's form.
func (c *conversation) opaque(provider string, raw json.RawMessage) {
	c.add(llm.RoleAssistant, llm.Part{
		Kind: llm.PartReasoning, Reasoning: &llm.Reasoning{Provider: provider, Opaque: raw},
	})
}

// call adds a call; names matches the valid names of tools.
func (c *conversation) call(names *regexp.Regexp, id, name, args string) error {
	if id == "" {
		return fmt.Errorf("a call of %s has no id", name)
	}
	if !names.MatchString(name) {
		return fmt.Errorf("%q is not a valid tool name", name)
	}
	if c.open == nil {
		c.open, c.names = make(map[string]int), make(map[string]string)
	}
	c.open[id]++
	c.names[id] = name
	c.add(llm.RoleAssistant, llm.Part{
		Kind: llm.PartToolCall, ToolCall: &llm.ToolCall{ID: id, Name: name, Arguments: args},
	})
	return nil
}

func (c *conversation) result(id string, parts []llm.Part) error {
	if c.open[id] == 0 {
		if c.names[id] != "" {
			return fmt.Errorf("the call %q is answered more than once", id)
		}
		return fmt.Errorf("a result answers the call %q, which was not made before", id)
	}
	c.open[id]--
	c.add(llm.RoleTool, llm.Part{
		Kind: llm.PartToolResult, ToolResult: &llm.ToolResult{
			CallID: id, Name: c.names[id], Parts: parts,
		},
	})
	return nil
}

// answered returns an error if a call has no result.
func (c *conversation) answered() error {
	for _, m := range c.messages {
		for _, call := range m.ToolCalls() {
			if c.open[call.ID] > 0 {
				return fmt.Errorf("the call %q of %s has no result", call.ID, call.Name)
			}
		}
	}
	return nil
}

var toolName = lazyregexp.New(`^[a-zA-Z0-9_-]{1,64}$`)

// tools validates the tools of a request.
type tools struct {
	specs []llm.ToolSpec
	seen  map[string]bool
}

func (t *tools) add(name, description string, schema json.RawMessage) error {
	if !toolName().MatchString(name) {
		return fmt.Errorf("%q is not a valid tool name", name)
	}
	if t.seen[name] {
		return fmt.Errorf("the tool %s is defined twice", name)
	}
	if err := checkSchema(schema); err != nil {
		return fmt.Errorf("the schema of tool %s: %w", name, err)
	}
	if t.seen == nil {
		t.seen = make(map[string]bool)
	}
	t.seen[name] = true
	t.specs = append(t.specs, llm.ToolSpec{Name: name, Description: description, Schema: schema})
	return nil
}

// checkSchema rejects a schema that is malformed, refers to another document, or has a root of
// another type than object.
func checkSchema(schema json.RawMessage) error {
	var root jsonschema.Schema
	if err := json.Unmarshal(schema, &root); err != nil || root.Type != "object" {
		return errors.Join(errors.New(`it is not of type "object"`), err)
	}
	refuse := func(u *url.URL) (*jsonschema.Schema, error) {
		return nil, fmt.Errorf("a reference to %s cannot be followed", u)
	}
	_, err := root.Resolve(&jsonschema.ResolveOptions{Loader: refuse})
	return err
}

// image decodes a data URL.
func image(url string) (llm.Part, error) {
	mime, data, ok := strings.Cut(strings.TrimPrefix(url, "data:"), ";base64,")
	if !ok || !strings.HasPrefix(url, "data:") || !strings.HasPrefix(mime, "image/") {
		return llm.Part{}, errors.New("an image is not a data URL of an image")
	}
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil || len(raw) == 0 {
		return llm.Part{}, errors.New("the data of an image is not base64")
	}
	return llm.Part{Kind: llm.PartImage, Image: &llm.Image{MIME: mime, Data: raw}}, nil
}
