package agent

import "github.com/sandboxagent/sandboxagent/runtime/llm"

// spend counts tokens that an agent has used, for those above it too.
func (s *Session) spend(u llm.Usage, guessed int64) {
	for ; s != nil; s = s.parent {
		s.mu.Lock()
		s.usage = s.usage.Add(u)
		s.guessed += guessed
		s.mu.Unlock()
	}
}

// limitsOf are those of a run, or else those of the session as they are now.
func (s *Session) limitsOf(in Input) Limits {
	if in.Limits != nil {
		return in.Limits.withDefaults()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limits
}

// overTokens returns the limit of tokens that a run has reached, its own or one of an agent above.
func (s *Session) overTokens(in Input) (limit int64, over bool) {
	for ; s != nil; s = s.parent {
		limit = s.limitsOf(in).MaxTokens
		s.mu.Lock()
		used := s.usage.Total() + s.guessed
		s.mu.Unlock()
		if limit > 0 && used >= limit {
			return limit, true
		}
		if s.parent != nil {
			in = s.parent.agents.run()
		}
	}
	return 0, false
}
