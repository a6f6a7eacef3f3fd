package llmtest

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// object is a JSON object.
type object map[string]any

// responsesWriter collects the events of a Responses stream.
type responsesWriter struct {
	events []sseEvent
	items  []json.RawMessage
	// thoughts are the items of reasoning, by their ids.
	thoughts map[string]json.RawMessage
	pad      int
}

func (w *responsesWriter) add(typ string, at Point, fields object) {
	fields["type"] = typ
	fields["sequence_number"] = len(w.events)
	if w.pad > 0 && at == AtText {
		fields["obfuscation"] = strings.Repeat("x", w.pad)
		w.pad = 0
	}
	w.events = append(w.events, sseEvent{name: typ, data: mustJSON(fields), at: at})
}

// done adds the end of an item.
func (w *responsesWriter) done(item object) {
	w.add("response.output_item.done", "", object{"output_index": len(w.items), "item": item})
	w.items = append(w.items, mustJSON(item))
}

// responsesEvents returns the events of an answer and its reasoning items.
func responsesEvents(req *Request, r Reply, ex extras) ([]sseEvent, map[string]json.RawMessage) {
	w := &responsesWriter{pad: r.Fault.Pad}
	id := fmt.Sprintf("resp_%d", req.Number)
	response := func(status string) object {
		return object{
			"id": id, "object": "response", "created_at": 1700000000, "status": status, "model": r.Model,
			"output": []any{},
			"error":  nil, "incomplete_details": nil, "metadata": object{}, "usage": nil,
		}
	}
	w.add("response.created", AtStart, object{"response": response("in_progress")})
	w.add("response.in_progress", "", object{"response": response("in_progress")})
	w.reasoning(req, r, ex)
	w.message(req, r)
	w.calls(req, r)
	final, typ := response("completed"), "response.completed"
	switch r.Finish {
	case llm.FinishLength:
		typ, final["status"] = "response.incomplete", "incomplete"
		final["incomplete_details"] = object{"reason": "max_output_tokens"}
	case llm.FinishContentFilter:
		typ, final["status"] = "response.incomplete", "incomplete"
		final["incomplete_details"] = object{"reason": "content_filter"}
	}
	u := r.Usage
	final["output"] = w.items
	final["usage"] = object{
		"input_tokens":          u.Input + u.CacheRead + u.CacheWrite,
		"input_tokens_details":  object{"cached_tokens": u.CacheRead, "cache_write_tokens": u.CacheWrite},
		"output_tokens":         u.Output,
		"output_tokens_details": object{"reasoning_tokens": u.Reasoning},
		"total_tokens":          u.Total(),
	}
	w.add(typ, AtEnd, object{"response": final})
	return w.events, w.thoughts
}

func (w *responsesWriter) reasoning(req *Request, r Reply, ex extras) {
	if r.Reasoning == "" {
		return
	}
	out := len(w.items)
	item := object{"id": fmt.Sprintf("rs_%d", req.Number), "type": "reasoning", "summary": []any{}}
	w.add("response.output_item.added", "", object{"output_index": out, "item": item})
	part := object{"type": "summary_text", "text": ""}
	at := object{"item_id": item["id"], "output_index": out, "summary_index": 0}
	w.add("response.reasoning_summary_part.added", "", with(at, "part", part))
	for _, piece := range pieces(r.Reasoning) {
		w.add("response.reasoning_summary_text.delta", "", with(at, "delta", piece))
	}
	w.add("response.reasoning_summary_text.done", "", with(at, "text", r.Reasoning))
	item["summary"] = []any{object{"type": "summary_text", "text": r.Reasoning}}
	if ex.encrypted {
		item["encrypted_content"] = fmt.Sprintf("gAAAA<%d>&==", req.Number)
	}
	w.done(item)
	w.thoughts = map[string]json.RawMessage{fmt.Sprint(item["id"]): w.items[out]}
}

func (w *responsesWriter) message(req *Request, r Reply) {
	if r.Text == "" {
		return
	}
	out := len(w.items)
	item := object{
		"id": fmt.Sprintf("msg_%d", req.Number), "type": "message", "role": "assistant",
		"status": "in_progress", "content": []any{},
	}
	w.add("response.output_item.added", "", object{"output_index": out, "item": item})
	at := object{"item_id": item["id"], "output_index": out, "content_index": 0}
	part := object{"type": "output_text", "text": "", "annotations": []any{}}
	w.add("response.content_part.added", "", with(at, "part", part))
	for _, piece := range pieces(r.Text) {
		w.add("response.output_text.delta", AtText, with(at, "delta", piece))
	}
	w.add("response.output_text.done", "", with(at, "text", r.Text))
	item["status"] = "completed"
	item["content"] = []any{object{"type": "output_text", "text": r.Text, "annotations": []any{}}}
	w.done(item)
}

func (w *responsesWriter) calls(req *Request, r Reply) {
	var items []object
	first := len(w.items)
	start := func(i int) {
		item := object{
			"id": fmt.Sprintf("fc_%d_%d", req.Number, i), "type": "function_call", "status": "in_progress",
			"call_id": r.Calls[i].ID, "name": r.Calls[i].Name, "arguments": "",
		}
		items = append(items, item)
		w.add("response.output_item.added", "", object{"output_index": first + i, "item": item})
	}
	grow := func(i int, piece string) {
		w.add("response.function_call_arguments.delta", AtArguments, object{
			"item_id": items[i]["id"], "output_index": first + i, "delta": piece,
		})
	}
	end := func(i int) {
		args := r.Calls[i].Arguments
		w.add("response.function_call_arguments.done", "", object{
			"item_id": items[i]["id"], "output_index": first + i, "arguments": args,
		})
		items[i]["arguments"], items[i]["status"] = args, "completed"
		w.done(items[i])
	}
	walkCalls(r, start, grow, end)
}

// walkCalls visits the calls one after the other, or their pieces in turn.
func walkCalls(r Reply, start func(int), grow func(int, string), end func(int)) {
	if !r.Fault.Interleave {
		for i, c := range r.Calls {
			start(i)
			for _, piece := range pieces(c.Arguments) {
				grow(i, piece)
			}
			end(i)
		}
		return
	}
	rest := make([][]string, len(r.Calls))
	most := 0
	for i, c := range r.Calls {
		start(i)
		rest[i] = pieces(c.Arguments)
		most = max(most, len(rest[i]))
	}
	for n := range most {
		for i := range r.Calls {
			if n < len(rest[i]) {
				grow(i, rest[i][n])
			}
		}
	}
	for i := range r.Calls {
		end(i)
	}
}

// with returns a copy of o with one field more.
func with(o object, name string, value any) object {
	c := object{name: value}
	for k, v := range o {
		c[k] = v
	}
	return c
}

// chatEvents returns the events of an answer.
func chatEvents(req *Request, r Reply, ex extras) ([]sseEvent, map[string]json.RawMessage) {
	var events []sseEvent
	pad := r.Fault.Pad
	chunk := func(at Point, choices []any, more object) {
		c := object{
			"id": fmt.Sprintf("chatcmpl-%d", req.Number), "object": "chat.completion.chunk",
			"created": 1700000000, "model": r.Model,
			"choices": choices,
		}
		if ex.usage {
			c["usage"] = nil
		}
		for k, v := range more {
			c[k] = v
		}
		if pad > 0 && at == AtText {
			c["obfuscation"] = strings.Repeat("x", pad)
			pad = 0
		}
		events = append(events, sseEvent{data: mustJSON(c), at: at})
	}
	delta := func(at Point, d object) {
		chunk(at, []any{object{"index": 0, "delta": d, "finish_reason": nil}}, nil)
	}
	delta(AtStart, object{"role": "assistant", "content": ""})
	for _, piece := range pieces(r.Reasoning) {
		delta("", object{"reasoning_content": piece})
	}
	for _, piece := range pieces(r.Text) {
		delta(AtText, object{"content": piece})
	}
	walkCalls(r, func(i int) {
		call := object{"index": i, "type": "function", "function": object{
			"name":      r.Calls[i].Name,
			"arguments": "",
		}}
		if r.Calls[i].ID != "" {
			call["id"] = r.Calls[i].ID
		}
		delta("", object{"tool_calls": []any{call}})
	}, func(i int, piece string) {
		delta(AtArguments, object{"tool_calls": []any{object{
			"index":    i,
			"function": object{"arguments": piece},
		}}})
	}, func(int) {})
	chunk(AtEnd, []any{object{"index": 0, "delta": object{}, "finish_reason": string(r.Finish)}}, nil)
	if ex.usage {
		u := r.Usage
		chunk("", []any{}, object{"usage": object{
			"prompt_tokens": u.Input + u.CacheRead + u.CacheWrite, "completion_tokens": u.Output,
			"total_tokens":              u.Total(),
			"prompt_tokens_details":     object{"cached_tokens": u.CacheRead},
			"completion_tokens_details": object{"reasoning_tokens": u.Reasoning},
		}})
	}
	return append(events, sseEvent{data: []byte("[DONE]"), surplus: true}), nil
}
