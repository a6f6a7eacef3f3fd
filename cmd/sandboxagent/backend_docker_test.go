package main

import (
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/images"
)

// TestDockerNote adds commands to the notes of the library, which names none.
func TestDockerNote(t *testing.T) {
	for line, want := range map[string]string{
		"the daemon lacks " + images.DefaultReference:             "image build base",
		"the daemon's system call filter is /etc/x, not Docker's": "env verify",
		"another note": "another note",
	} {
		var got string
		o := openConfig{
			notify:   func(line string) { got = line },
			noteOnce: func(_, line string) { got = line },
		}
		o.dockerNote(line)
		if !strings.HasPrefix(got, line) || !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}
