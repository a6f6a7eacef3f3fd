package agent_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// TestDepth counts the calls of this module between Agent.Run and a tool.
func TestDepth(t *testing.T) {
	var way []string
	depth := newTool("depth", false, func(context.Context, *tool.Call) (tool.Result, error) {
		pcs := make([]uintptr, 100)
		frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
		for {
			f, more := frames.Next()
			name, ours := strings.CutPrefix(f.Function, "github.com/sandboxagent/sandboxagent/")
			if strings.HasSuffix(name, "agent.(*Agent).Run") || !more {
				return tool.Result{}, nil
			}
			if ours {
				way = append(way, name)
			}
		}
	})
	a := newAgent(t, config(&model{answers: []answer{calls(call("a", "depth", nil))}}, depth))
	if _, err := a.Run(t.Context(), agent.Input{Text: "go"}); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(way)
	if len(way) != 8 {
		t.Errorf("%d calls lead to a tool, want 8 as the package comment states:\n%s", len(way),
			strings.Join(way, "\n"))
	}
}
