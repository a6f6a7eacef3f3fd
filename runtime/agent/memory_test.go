package agent_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

// TestMemory works 500 rounds with results of 20,000 bytes. What the run keeps of a
// round beside its context is bounded.
func TestMemory(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var early, late int64
	answers := 0
	m := longTask(500, 200, func(req llm.Request) {
		if isSummary(req) {
			return
		}
		switch answers++; answers {
		case 100:
			early = heap()
		case 500:
			late = heap()
		}
	})
	cfg := config(m, reader(5000))
	cfg.Store, cfg.Profile.ContextWindow = session.OnDisk(t.TempDir()), 40_000
	cfg.Limits = agent.Limits{MaxToolRounds: 1000, NoLoopDetection: true}
	res := submit(t, newSession(t, cfg), "go")
	if grown := late - early; grown > 400*5_000 {
		t.Errorf("the heap has grown by %d bytes in 400 rounds, from %d", grown, early)
	}
	first := res.ToolCalls[0]
	if n := len(first.Result); n > 2_100 || !strings.HasPrefix(first.Result, "file1 abc") ||
		first.Arguments != `{"path":"file1"}` {
		t.Errorf("the first call is %+v", first)
	}
}
