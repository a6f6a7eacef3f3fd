package agent_test

import (
	"context"
	"fmt"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// lastRounds is a ContextManager that keeps this many answers with the results of their calls, once
// a conversation has twice as many.
type lastRounds int

// Shorten implements agent.ContextManager.
func (n lastRounds) Shorten(
	_ context.Context, c agent.Conversation,
) (agent.Shortening, error) {
	var answers []int // their places in the conversation
	for i, turn := range c.Turns {
		if turn.Kind == session.TurnAssistant {
			answers = append(answers, i)
		}
	}
	if len(answers) < 2*int(n) {
		return agent.Shortening{}, nil
	}
	first := answers[len(answers)-int(n)]
	return agent.Shortening{Replace: first, Text: "Older rounds were removed."}, nil
}

// Decide how a conversation gets shorter. The user's words stay in any case.
func ExampleContextManager() {
	a, err := agent.New(agent.Config{
		Client: scripted(`
turns:
  - calls: [{tool: think, args: {about: one}}]
  - calls: [{tool: think, args: {about: two}}]
  - calls: [{tool: think, args: {about: three}}]
  - calls: [{tool: think, args: {about: four}}]
  - expect: {user: {contains: [Older rounds were removed., Format the file.]}}
    text: It is formatted.
`),
		Profile: profile.Gemini("gemini-2.5-pro"),
		Tools:   []tool.Tool{think()},
		Context: lastRounds(2),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = a.Close() }()
	s, err := a.NewSession(context.Background(), agent.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := s.Submit(context.Background(), "Format the file.")
	fmt.Println(res.Final, err)
	for _, turn := range s.History() {
		fmt.Println(turn.Kind)
	}
	// Output:
	// It is formatted. <nil>
	// steering
	// assistant
	// tool_results
	// assistant
	// tool_results
	// assistant
}
