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

// TestRedactOtherHistories lets secrets go to other agents and to the user, and through the check.
func TestRedactOtherHistories(t *testing.T) {
	const canary = "canary-bird-0815"
	filler := strings.Repeat("x", 8<<10-4) // the check keeps 8 KiB of each end
	c := one(object{"task": "use " + canary}, calls(call("e", "look", nil)))
	exit := call("x", "exit", object{"code": 0, "reason": canary})
	c.scripts[""] = append(c.scripts[""], calls(exit))
	store := &recorder{}
	var n callLog
	cfg := treeConfigIn(t, t.TempDir(), c, n.tool("look", true), tool.ExitTool())
	cfg.Redactor = redact.New(redact.Patterns, map[string]string{"CANARY": canary})
	cfg.Verify = agent.Verify{Attempts: 1, Command: "printf '" + filler + "cana'; printf " +
		"'ry-bird-0815" + strings.Repeat("y", 20<<10) + "'; false"}
	cfg.Store = func(string) (session.Store, error) { return store, nil }
	var sent strings.Builder
	cfg.Sinks = append(cfg.Sinks, func(e event.Event) error {
		b, err := json.Marshal(e)
		sent.Write(b)
		return err
	})
	res, _ := newSession(t, cfg).Run(t.Context(), agent.Input{Text: "go"})
	if res.Status != agent.StatusVerifyFailed {
		t.Errorf("ended with %s", res.Status)
	}
	result, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	first, err := json.Marshal(c.request(t, "agent_1", 0).Messages)
	if err != nil {
		t.Fatal(err)
	}
	for place, text := range map[string]string{
		"events": sent.String(), "the result": string(result), "the journal": fmt.Sprint(store.entries),
		"the request of the sub-agent": string(first),
	} {
		if i := strings.Index(text, "canary-"); i >= 0 {
			t.Errorf("%s: %s", place, text[max(0, i-200):i+20])
		}
		if !strings.Contains(text, "[redacted: CANARY]") {
			t.Errorf("%s: no marker", place)
		}
	}
}
