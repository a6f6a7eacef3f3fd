package gemini

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/internal/exchange"
)

// unsigned is the signature that Google defines for a call that a model from Gemini 3 on did not
// make itself.
const unsigned = `"skip_thought_signature_validator"`

func (c *client) request(req llm.Request) (wireRequest, error) {
	b := wireRequest{}
	if req.System != "" {
		b.SystemInstruction = &wireContent{Parts: []any{wireText{req.System}}}
	}
	h := history{provider: c.Provider, generation: generationOf(req.Model), ids: make(map[string]bool)}
	for i, m := range req.Messages {
		if err := h.add(m); err != nil {
			return b, fmt.Errorf("message %d: %w", i, err)
		}
	}
	h.flush()
	b.Contents = h.contents
	if len(req.Tools) > 0 {
		var tool wireTool
		for _, t := range req.Tools {
			tool.FunctionDeclarations = append(tool.FunctionDeclarations, wireFunctionDeclaration{
				Name: t.Name, Description: t.Description, ParametersJSONSchema: t.Schema,
			})
		}
		b.Tools = append(b.Tools, tool)
		if req.NoToolCalls {
			b.ToolConfig = &wireToolConfig{wireFunctionCallingConfig{Mode: "NONE"}}
		}
	}
	if more := req.Options["tools"]; more != nil {
		var list []json.RawMessage
		data, err := json.Marshal(more)
		if err == nil {
			err = json.Unmarshal(data, &list)
		}
		if err != nil {
			return b, fmt.Errorf(`the option "tools" is no list: %w`, err)
		}
		for _, tool := range list {
			b.Tools = append(b.Tools, tool)
		}
	}
	think, err := thinking(req.Model, req.ReasoningEffort)
	if err != nil {
		return b, err
	}
	if think != nil || req.MaxOutputTokens != 0 {
		b.GenerationConfig = &wireGenerationConfig{
			MaxOutputTokens: req.MaxOutputTokens,
			ThinkingConfig:  think,
		}
	}
	return b, nil
}

// otherOptions returns the options that request does not handle.
func otherOptions(options map[string]any) map[string]any {
	if options["tools"] == nil {
		return options
	}
	rest := maps.Clone(options)
	delete(rest, "tools")
	return rest
}

// history makes contents of messages.
type history struct {
	provider   string
	generation float64
	contents   []wireContent
	// ids are the ids of all calls so far.
	ids map[string]bool
	// calls are the calls of the last answer in order, and results their results so far.
	calls   []sentCall
	results []sentResult
}

// sentCall is a call in its wire form.
type sentCall struct {
	// local is the id in tool results; id is the id of the model, if any.
	local, id, name string
	answered        bool
}

type sentResult struct {
	// index is the index of the call in history.calls.
	index    int
	response wireFunctionResponse
	images   []any
}

func (h *history) add(m llm.Message) error {
	if m.Role != llm.RoleTool {
		h.flush()
	}
	switch m.Role {
	case llm.RoleUser:
		return h.user(m)
	case llm.RoleAssistant:
		return h.model(m)
	case llm.RoleTool:
		for _, p := range m.Parts {
			if p.Kind != llm.PartToolResult || p.ToolResult == nil {
				return exchange.UnsendablePart(p, m.Role)
			}
			if err := h.result(*p.ToolResult); err != nil {
				return err
			}
		}
		return nil
	}
	return exchange.UnknownRole(m.Role)
}

func (h *history) user(m llm.Message) error {
	out := wireContent{Role: "user"}
	for _, p := range m.Parts {
		switch {
		case p.Kind == llm.PartText:
			if p.Text != "" {
				out.Parts = append(out.Parts, wireText{p.Text})
			}
		case p.Kind == llm.PartImage && p.Image != nil:
			out.Parts = append(out.Parts, imagePart(*p.Image))
		default:
			return exchange.UnsendablePart(p, m.Role)
		}
	}
	if len(out.Parts) == 0 {
		// The server rejects a content without parts.
		out.Parts = append(out.Parts, wireText{" "})
	}
	h.contents = append(h.contents, out)
	return nil
}

// model adds an answer, unless the server accepts nothing of it.
func (h *history) model(m llm.Message) error {
	// The server requires calls to follow a content of the user directly.
	out := wireContent{Role: "model"}
	if n := len(h.contents); n > 0 && h.contents[n-1].Role == out.Role {
		out, h.contents = h.contents[n-1], h.contents[:n-1]
	} else {
		h.calls = nil
	}
	// mark are the fields of the next part beside its text or arguments.
	var mark wirePart
	for _, p := range m.Parts {
		switch {
		case p.Kind == llm.PartReasoning:
			mark = nil
			r := p.Reasoning
			if r == nil || r.Provider != h.provider || len(r.Opaque) == 0 {
				continue
			}
			var f wirePart
			if err := json.Unmarshal(r.Opaque, &f); err != nil {
				return fmt.Errorf("opaque reasoning is not a part: %w", err)
			}
			if isWhole(f) {
				out.Parts = append(out.Parts, r.Opaque)
				continue
			}
			mark = f
		case p.Kind == llm.PartText:
			f := take(&mark, "functionCall", false)
			if p.Text == "" && len(f) == 0 {
				continue
			}
			f["text"] = exchange.MustJSON(p.Text)
			out.Parts = append(out.Parts, f)
		case p.Kind == llm.PartToolCall && p.ToolCall != nil:
			f, err := h.call(*p.ToolCall, take(&mark, "functionCall", true))
			if err != nil {
				return err
			}
			out.Parts = append(out.Parts, f)
		default:
			return exchange.UnsendablePart(p, m.Role)
		}
	}
	if len(out.Parts) > 0 {
		h.contents = append(h.contents, out)
	}
	return nil
}

// isWhole reports whether opaque reasoning is a separate part rather than the mark of the next one.
func isWhole(f wirePart) bool {
	for name := range f {
		if name != "thoughtSignature" && name != "functionCall" {
			return true
		}
	}
	return false
}

// take returns a copy of mark if it belongs to a part of this kind, and clears it.
func take(mark *wirePart, call string, isCall bool) wirePart {
	f := wirePart{}
	if _, ok := (*mark)[call]; ok == isCall {
		maps.Copy(f, *mark)
	}
	*mark = nil
	return f
}

// call returns the part of a call with the mark f.
func (h *history) call(call llm.ToolCall, f wirePart) (wirePart, error) {
	sent := wirePart{}
	if raw := f["functionCall"]; raw != nil {
		if err := json.Unmarshal(raw, &sent); err != nil {
			return nil, fmt.Errorf("the call of %s is marked by a part that is none: %w", call.Name, err)
		}
	}
	name := toolName(call.Name)
	if name != call.Name {
		// The signature is for another name.
		delete(f, "thoughtSignature")
	}
	if h.generation >= 3 && len(h.calls) == 0 && f["thoughtSignature"] == nil {
		f["thoughtSignature"] = json.RawMessage(unsigned)
	}
	var id string
	if raw := sent["id"]; raw != nil {
		if err := json.Unmarshal(raw, &id); err != nil {
			return nil, fmt.Errorf("the id of a call of %s is not a string: %w", call.Name, err)
		}
	}
	if h.ids[id] {
		// Models repeat ids, which identify results. The ids of the caller are unique.
		id = call.ID
		sent["id"] = exchange.MustJSON(id)
	}
	if id == "" {
		delete(sent, "id")
	} else {
		h.ids[id] = true
	}
	h.calls = append(h.calls, sentCall{local: call.ID, id: id, name: name})
	sent["name"] = exchange.MustJSON(name)
	sent["args"] = exchange.ArgumentsObject(call.Arguments, "arguments")
	data, err := json.Marshal(sent)
	if err != nil {
		return nil, err
	}
	f["functionCall"] = data
	return f, nil
}

// result collects the result of a call until flush.
func (h *history) result(r llm.ToolResult) error {
	sent := sentResult{index: len(h.calls)}
	response := wireFunctionResponse{Name: toolName(r.Name)}
	for i, c := range h.calls {
		if c.local == r.CallID && !c.answered {
			h.calls[i].answered = true
			sent.index, response.ID, response.Name = i, c.id, c.name
			break
		}
	}
	for _, p := range r.Parts {
		switch {
		case p.Kind == llm.PartText:
		case p.Kind == llm.PartImage && p.Image != nil && h.generation >= 3:
			response.Parts = append(response.Parts, imagePart(*p.Image))
		case p.Kind == llm.PartImage && p.Image != nil:
			// Older models reject images in results.
			sent.images = append(sent.images, imagePart(*p.Image))
		default:
			return fmt.Errorf("result of %s: %w", r.Name, exchange.UnsendablePart(p, llm.RoleTool))
		}
	}
	key := "output"
	if r.IsError {
		key = "error"
	}
	response.Response = map[string]string{key: r.Text()}
	sent.response = response
	h.results = append(h.results, sent)
	return nil
}

// flush adds the collected results, in the order of their calls.
func (h *history) flush() {
	if len(h.results) == 0 {
		return
	}
	slices.SortStableFunc(h.results, func(a, b sentResult) int {
		return cmp.Compare(a.index, b.index)
	})
	out := wireContent{Role: "user"}
	for _, r := range h.results {
		out.Parts = append(out.Parts, wireResponsePart{r.response})
	}
	for _, r := range h.results {
		out.Parts = append(out.Parts, r.images...)
	}
	h.contents = append(h.contents, out)
	h.results = nil
}

// toolName returns the name that the server accepts for a tool name that a model made up. The
// server rejects other names together with the whole conversation.
func toolName(name string) string {
	name = strings.Map(func(r rune) rune {
		if isLetter(r) || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '_'
	}, name)
	if name == "" || !isLetter(rune(name[0])) {
		name = "_" + name
	}
	return name[:min(len(name), 64)]
}

func isLetter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' }
