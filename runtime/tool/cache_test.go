package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// counting returns a tool whose result is the number of its calls.
func counting(name, class string, readOnly bool, runs *int) Tool {
	return Tool{
		ToolSpec: llm.ToolSpec{Name: name, Schema: []byte(`{"type":"object"}`)}, Class: class,
		ReadOnly: readOnly, NeedsEnv: true,
		Run: func(context.Context, *Call) (Result, error) {
			*runs++
			return Result{Text: fmt.Sprint(*runs)}, nil
		},
	}
}

// TestCache makes calls in the order of a session with a sub-agent.
func TestCache(t *testing.T) {
	e, _ := here(t, nil)
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		failing := counting("failing", policy.ClassRead, true, &runs)
		failing.Run = func(context.Context, *Call) (Result, error) { return Result{IsError: true}, nil }
		waiting := counting("waiting", "", true, &runs)
		waiting.Waits = true
		tools, err := NewRegistry(counting("read", policy.ClassRead, true, &runs),
			counting("search", policy.ClassSearch, true, &runs), counting("own", "", true, &runs),
			counting("write", policy.ClassWrite, false, &runs),
			counting("shell", policy.ClassShell, false, &runs), failing, waiting)
		if err != nil {
			t.Fatal(err)
		}
		root := Scope{Env: e, Cache: NewCache()}
		sub := Scope{Env: e, Cache: root.Cache.Fork()}
		deny := root
		deny.Permit = func(context.Context, Tool, json.RawMessage) error { return errors.New("no") }
		short := root
		short.Limits = map[string]Limit{"read": {Chars: 100}}
		for i, step := range []struct {
			scope  Scope
			name   string
			args   args
			wait   time.Duration
			cached bool
		}{
			{scope: root, name: "read", args: args{"a": 1}},
			{scope: root, name: "read", args: args{"a": 1}, wait: cacheTime - 1, cached: true},
			{scope: root, name: "read", args: args{"a": 2}},
			{scope: root, name: "search", args: args{"a": 1}},
			{scope: root, name: "read", args: args{"a": 1}, wait: 1},
			{scope: root, name: "search", args: args{"a": 1}, cached: true},
			{scope: short, name: "read", args: args{"a": 1}},
			{scope: sub, name: "read", args: args{"a": 1}},
			{scope: sub, name: "read", args: args{"a": 1}, cached: true},
			{scope: root, name: "read", args: args{"a": 1}, cached: true},
			{scope: root, name: "waiting", args: args{}},
			{scope: root, name: "read", args: args{"a": 1}, cached: true},
			{scope: sub, name: "write", args: args{}},
			{scope: root, name: "read", args: args{"a": 1}},
			{scope: sub, name: "read", args: args{"a": 1}},
			{scope: root, name: "shell", args: args{}},
			{scope: root, name: "shell", args: args{}},
			{scope: sub, name: "read", args: args{"a": 1}},
			{scope: root, name: "read", args: args{"a": 1}},
			{scope: root, name: "own", args: args{}},
			{scope: root, name: "read", args: args{"a": 1}},
			{scope: root, name: "failing", args: args{}},
			{scope: root, name: "failing", args: args{}},
			{scope: deny, name: "read", args: args{"a": 1}},
			{scope: root, name: "read", args: args{"a": 1}, cached: true},
		} {
			time.Sleep(step.wait)
			before := runs
			o := tools.Run(t.Context(), step.scope, call(t, step.name, step.args))
			cached := slices.Contains(o.Steps, event.StepCache)
			if cached != step.cached || cached && (runs != before || o.Result.Text() == "" ||
				o.Result.CallID != o.Call.ID) {
				t.Errorf("step %d, %s: %v, %+v", i, step.name, o.Steps, o.Result)
			}
		}
	})
}

// TestCacheOfEqualCalls gives the result of a call whose arguments are written in another way.
func TestCacheOfEqualCalls(t *testing.T) {
	c := NewCache()
	read := Tool{ToolSpec: llm.ToolSpec{Name: "read"}}
	_, keep := c.get(read, json.RawMessage(`{"a": 1, "b": "x"}`), Limit{})
	keep(Outcome{})
	for text, want := range map[string]bool{
		`{"b":"x","a":1}`: true, `{"a":1,"b":"y"}`: false, `{"a":1}`: false,
	} {
		if earlier, _ := c.get(read, json.RawMessage(text), Limit{}); (earlier != nil) != want {
			t.Errorf("%s: %v", text, earlier)
		}
	}
}

// TestCacheOfConcurrentCalls keeps no result of a call during which another one may change files.
func TestCacheOfConcurrentCalls(t *testing.T) {
	c := NewCache()
	read := Tool{ToolSpec: llm.ToolSpec{Name: "read"}}
	keeps := func(during func()) bool {
		_, keep := c.get(read, nil, Limit{})
		during()
		if keep != nil {
			keep(Outcome{})
		}
		earlier, _ := c.get(read, nil, Limit{})
		c.Changing()()
		return earlier != nil
	}
	if !keeps(func() {}) {
		t.Error("nothing is kept")
	}
	if keeps(func() { c.Fork().Changing()() }) {
		t.Error("kept although a call ran meanwhile")
	}
	ended := c.Fork().Changing()
	if keeps(func() {}) {
		t.Error("kept while a call runs")
	}
	if keeps(ended) {
		t.Error("kept although a call ended meanwhile")
	}
}
