package agent

import (
	"crypto/sha256"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// signature identifies a call by its tool and arguments, regardless of the order of keys and of
// white space.
type signature [sha256.Size]byte

func sign(c llm.ToolCall) signature {
	return sha256.Sum256([]byte(c.Name + "\x00" + c.Canonical()))
}

// loopDetector finds a repeated pattern of one, two or three calls that fills a window.
type loopDetector struct {
	window int
	calls  []signature
}

func (d *loopDetector) add(c llm.ToolCall) {
	d.calls = append(d.calls, sign(c))
	if over := len(d.calls) - d.window; over > 0 {
		d.calls = d.calls[over:]
	}
}

// looping reports whether the last calls repeat a pattern. For a pattern of n calls it compares the
// last W − W mod n of a window of W. A found pattern empties the window.
func (d *loopDetector) looping() bool {
	if d.window <= 0 || len(d.calls) < d.window {
		return false
	}
	for n := 1; n <= 3; n++ {
		span := d.window - d.window%n
		if span >= 2*n && repeats(d.calls[len(d.calls)-span:], n) {
			d.calls = nil
			return true
		}
	}
	return false
}

func repeats(calls []signature, n int) bool {
	for i := n; i < len(calls); i++ {
		if calls[i] != calls[i-n] {
			return false
		}
	}
	return true
}
