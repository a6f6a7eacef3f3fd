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

// strict decodes data into v and refuses fields that v does not have.
func strict(data []byte, v any) error {
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

// conversation collects messages, and sees to it that each tool call is answered exactly once.
type conversation struct {
	messages []llm.Message
	// open counts the unanswered calls of an id; names keeps the tool of each id.
	open  map[string]int
	names map[string]string
}

// add appends a part. Parts of one role in a row make one message, but for user messages.
func (c *conversation) add(role llm.Role, parts ...llm.Part) {
	if n := len(c.messages); role != llm.RoleUser && n > 0 && c.messages[n-1].Role == role {
		c.messages[n-1].Parts = append(c.messages[n-1].Parts, parts...)
		return
	}
	c.messages = append(c.messages, llm.Message{Role: role, Parts: parts})
}

// call adds a call whose name is one of a tool as names says.
func (c *conversation) call(names *regexp.Regexp, id, name, args string) error {
	if id == "" {
		return fmt.Errorf("a call of %s has no id", name)
	}
	if !names.MatchString(name) {
		return fmt.Errorf("%q is no name of a tool", name)
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
			CallID: id, Name: c.names[id],
			Parts: parts,
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

// tools checks the tools of a request.
type tools struct {
	specs []llm.ToolSpec
	seen  map[string]bool
}

func (t *tools) add(name, description string, schema json.RawMessage) error {
	if !toolName().MatchString(name) {
		return fmt.Errorf("%q is no name of a tool", name)
	}
	if t.seen[name] {
		return fmt.Errorf("the tool %s is there twice", name)
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

// checkSchema returns an error for a schema that is malformed, refers to another document, or has a
// root of another type than object.
func checkSchema(schema json.RawMessage) error {
	var root jsonschema.Schema
	if err := json.Unmarshal(schema, &root); err != nil || root.Type != "object" {
		return errors.Join(errors.New(`it is not of type "object"`), err)
	}
	_, err := root.Resolve(&jsonschema.ResolveOptions{Loader: func(u *url.URL) (*jsonschema.Schema,
		error,
	) {
		return nil, fmt.Errorf("a reference to %s cannot be followed", u)
	}})
	return err
}

// image reads a data URL.
func image(url string) (llm.Part, error) {
	mime, data, ok := strings.Cut(strings.TrimPrefix(url, "data:"), ";base64,")
	if !ok || !strings.HasPrefix(url, "data:") || !strings.HasPrefix(mime, "image/") {
		return llm.Part{}, errors.New("an image is no data URL of an image")
	}
	raw, err := base64.StdEncoding.DecodeString(data)
	if err != nil || len(raw) == 0 {
		return llm.Part{}, errors.New("the data of an image is not base64")
	}
	return llm.Part{Kind: llm.PartImage, Image: &llm.Image{MIME: mime, Data: raw}}, nil
}
