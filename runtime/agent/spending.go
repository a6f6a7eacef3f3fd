package agent

import (
	"math"
	"slices"

	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// spending is what models were used for, in the order of their first answers.
type spending []event.ModelUsage

// add adds what other models, or the same ones, were used for.
func (s *spending) add(more spending) {
	for _, m := range more {
		i := slices.IndexFunc(*s, func(own event.ModelUsage) bool { return own.Model == m.Model })
		if i < 0 {
			*s = append(*s, m)
			continue
		}
		own := &(*s)[i]
		own.Answers += m.Answers
		own.Usage = own.Usage.Add(m.Usage)
		own.CostUSD = sum(own.CostUSD, m.CostUSD)
	}
}

// total returns all tokens and their price, which is nil if one is not known, and without answers.
func (s spending) total() (u llm.Usage, dollars *float64) {
	if len(s) > 0 {
		dollars = new(float64)
	}
	for _, m := range s {
		u, dollars = u.Add(m.Usage), sum(dollars, m.CostUSD)
	}
	return u, dollars
}

// sum returns the sum of amounts of money; nil if one is not known.
func sum(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return money(*a + *b)
}

// money returns an amount of dollars to a millionth of a cent, so that records are short.
func money(dollars float64) *float64 { return new(math.Round(dollars*1e8) / 1e8) }
