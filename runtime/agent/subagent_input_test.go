package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

func TestSendInput_9_9_6(t *testing.T) {
	t.Run("running", func(t *testing.T) {
		b := newBlocker()
		c := &cast{scripts: map[string][]answer{
			"": {
				calls(spawn("a", nil)),
				{calls: []llm.ToolCall{send("agent_1", "also look left")}, before: b.runs(1)},
				{calls: []llm.ToolCall{onAgent("wait", "agent_1")}, before: func(context.Context,
					llm.Request,
				) {
					close(b.free)
				}},
			},
			"agent_1": {calls(b.call("x")), {text: "looked"}},
		}}
		ev := &events{}
		cfg := family(c, b.tool())
		cfg.Sinks = append(cfg.Sinks, ev.sink)
		submit(t, newSession(t, cfg), "go")
		if got := c.result(t, "", 2, 0); got != "agent_id: agent_1\nagent_type: general\nstatus: "+
			"running" {
			t.Errorf("send_input said %q", got)
		}
		msgs := c.request(t, "agent_1", 1).Messages
		if got := msgs[len(msgs)-1].Text(); got != "also look left" ||
			msgs[len(msgs)-2].Role != llm.RoleTool {
			t.Errorf("the sub-agent was told %q", got)
		}
		for _, e := range ev.all {
			if e.Kind() == event.KindSteeringInjected && e.AgentID != "agent_1" {
				t.Errorf("the message reached %q", e.AgentID)
			}
		}
	})
	t.Run("idle", func(t *testing.T) {
		c := &cast{scripts: map[string][]answer{
			"": {
				calls(spawn("a", nil)), calls(onAgent("wait", "agent_1")), calls(send("agent_1", "and now?")),
				calls(onAgent("wait", "agent_1")),
				{text: "end"},
				calls(send("agent_1", "once more")), calls(onAgent("wait", "agent_1")),
			},
			"agent_1": {{text: "one"}, {text: "two"}, {text: "three"}},
		}}
		s := newSession(t, family(c))
		res := submit(t, s, "go")
		if got := c.result(t, "", 4, 0); !strings.Contains(got, "turns_used: 4\n") ||
			!strings.HasSuffix(got, "two") {
			t.Errorf("the second wait said %q", got)
		}
		var got []string
		for _, m := range c.request(t, "agent_1", 1).Messages {
			got = append(got, m.Text())
		}
		if !slices.Equal(got, []string{"the task of a", "one", "and now?"}) {
			t.Errorf("the sub-agent went on with %q", got)
		}
		if len(res.Agents) != 2 {
			t.Errorf("the run's agents are %+v", res.Agents)
		}
		if res = submit(t, s, "again"); len(res.Agents) != 1 || !strings.HasSuffix(c.result(t, "", 7, 0),
			"three") {
			t.Errorf("in the next run, the agents are %+v", res.Agents)
		}
	})
	t.Run("at its end", func(t *testing.T) {
		var s *agent.Session
		var once sync.Once
		said := ""
		c := &cast{scripts: map[string][]answer{
			"":        {calls(spawn("a", nil)), calls(onAgent("wait", "agent_1"))},
			"agent_1": {{text: "one"}, {text: "two"}},
		}}
		cfg := family(c)
		cfg.Sinks = append(cfg.Sinks, func(e event.Event) error {
			// it takes no message any more, and still counts as running
			if e.AgentID != "" && e.Kind() == event.KindProcessingEnd {
				once.Do(func() {
					send, _ := s.Tools().Get("send_input")
					r, err := send.Run(t.Context(), &tool.Call{Args: json.RawMessage(`{"agent_id": "agent_1", "message": "too late?"}`)})
					said = fmt.Sprint(r.Text, err)
				})
			}
			return nil
		})
		s = newSession(t, cfg)
		submit(t, s, "go")
		if !strings.Contains(said, "status: running") {
			t.Fatalf("the test is wrong: send_input said %q", said)
		}
		msgs := c.request(t, "agent_1", 1).Messages
		if got := msgs[len(msgs)-1].Text(); got != "too late?" {
			t.Errorf("the sub-agent was asked %q", got)
		}
		if got := c.result(t, "", 2, 0); !strings.HasSuffix(got, "\ntwo") {
			t.Errorf("wait said %q", got)
		}
	})
}
