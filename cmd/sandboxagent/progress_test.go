package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// TestPauseHoldsLines checks that what happens during a question is shown after it, and not lost.
func TestPauseHoldsLines(t *testing.T) {
	var b bytes.Buffer
	p := newProgress(&b)
	defer p.close()
	p.pause(func() {
		p.observe(event.Event{Data: event.ToolCallEnd{Name: "ask_user", CallID: "c", Result: "asked"}})
		if b.Len() > 0 {
			t.Errorf("written during the question: %q", b.String())
		}
	})
	if !strings.HasPrefix(b.String(), "ok    ask_user") {
		t.Errorf("after the question: %q", b.String())
	}
}
