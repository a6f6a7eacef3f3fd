package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/policy/redact"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// TestRedactArguments runs calls with secrets in their arguments: they run as the model wrote them,
// and nothing else has the secrets.
func TestRedactArguments(t *testing.T) {
	const canary, pem = "canary-bird-0815", "-----BEGIN RSA PRIVATE" + " KEY-----\nMIIE\n"
	const random = "Zq8r" + "T3vLm9Xw2Kp7"
	for name, args := range map[string]object{
		"a value":          {"n": canary},
		"in a list":        {"n": []any{"x", object{"y": "a " + canary + " b"}}},
		"a key that ends":  {"m": "z", "n": pem},
		"told by its name": {"api_token": random},
		"none":             {"n": 1.5},
	} {
		var ran []string
		var sent strings.Builder
		store := &recorder{}
		m := &model{answers: []answer{calls(call("1", "a", args))}}
		cfg := config(m, newTool("a", false,
			func(_ context.Context, c *tool.Call) (tool.Result, error) {
				ran = append(ran, string(c.Args))
				return tool.Result{}, nil
			}))
		cfg.Redactor = redact.New(redact.Patterns, map[string]string{"CANARY": canary})
		cfg.Store = func(string) (session.Store, error) { return store, nil }
		cfg.Sinks = append(cfg.Sinks, func(e event.Event) error {
			b, err := json.Marshal(e)
			sent.Write(b)
			return err
		})
		res, err := newSession(t, cfg).Run(t.Context(), agent.Input{Text: "go"})
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(args)
		if err != nil {
			t.Fatal(err)
		}
		if len(ran) != 1 || ran[0] != string(want) {
			t.Errorf("%s: ran with %q", name, ran)
		}
		request, err := json.Marshal(m.request(t, 1).Messages)
		if err != nil {
			t.Fatal(err)
		}
		result, err := json.Marshal(res.ToolCalls)
		if err != nil {
			t.Fatal(err)
		}
		for place, text := range map[string]string{
			"events": sent.String(), "the request": string(request), "the result": string(result),
			"the journal": fmt.Sprint(store.entries),
		} {
			for _, secret := range []string{canary, "MIIE", random} {
				if strings.Contains(text, secret) {
					t.Errorf("%s: %s: %s", name, place, text)
				}
			}
			if strings.Contains(text, "[redacted: ") != (name != "none") {
				t.Errorf("%s: %s: %s", name, place, text)
			}
		}
	}
}
