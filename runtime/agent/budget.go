package agent

import (
	"sync"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// budget counts the tokens of an agent and of all its sub-agents.
type budget struct {
	parent *budget
	// limit returns the limit of the current run; zero means none.
	limit func() int64

	mu    sync.Mutex
	usage llm.Usage
	// estimated sums the tokens of answers whose server reported no usage.
	estimated int64
}

// spend adds tokens to b and to the budgets above it.
func (b *budget) spend(u llm.Usage, estimated int64) {
	for ; b != nil; b = b.parent {
		b.mu.Lock()
		b.usage = b.usage.Add(u)
		b.estimated += estimated
		b.mu.Unlock()
	}
}

// used returns the tokens that servers reported, and those that are estimated.
func (b *budget) used() (u llm.Usage, estimated int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.usage, b.estimated
}

// exceeded returns the first limit that is reached, from b upwards.
func (b *budget) exceeded() (limit int64, reached bool) {
	for ; b != nil; b = b.parent {
		u, estimated := b.used()
		if limit := b.limit(); limit > 0 && u.Total()+estimated >= limit {
			return limit, true
		}
	}
	return 0, false
}
