package event

import (
	"math"
	"slices"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// AddUsage adds what models were used for to a list with one element a model, in the order of their
// first answers.
func AddUsage(list []ModelUsage, more ...ModelUsage) []ModelUsage {
	for _, m := range more {
		i := slices.IndexFunc(list, func(own ModelUsage) bool { return own.Model == m.Model })
		if i < 0 {
			list = append(list, m)
			continue
		}
		own := &list[i]
		own.Answers += m.Answers
		own.Usage = own.Usage.Add(m.Usage)
		own.CostUSD = addMoney(own.CostUSD, m.CostUSD)
	}
	return list
}

// TotalUsage returns all tokens and their price, which is nil if one is not known, and without
// answers.
func TotalUsage(list []ModelUsage) (u llm.Usage, dollars *float64) {
	if len(list) > 0 {
		dollars = new(float64)
	}
	for _, m := range list {
		u, dollars = u.Add(m.Usage), addMoney(dollars, m.CostUSD)
	}
	return u, dollars
}

// addMoney returns the sum of amounts; nil if one is not known.
func addMoney(a, b *float64) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return new(RoundMoney(*a + *b))
}

// RoundMoney rounds an amount of US dollars to a millionth of a cent, so that records are short.
func RoundMoney(dollars float64) float64 { return math.Round(dollars*1e8) / 1e8 }
