package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// Price is the price of the tokens of a model, in US dollars for a million tokens. Reasoning tokens
// are output.
type Price struct {
	Input      float64 `json:"input"`
	CacheRead  float64 `json:"cache_read"`
	CacheWrite float64 `json:"cache_write"`
	Output     float64 `json:"output"`
	// Long is the price of requests with more than LongAbove tokens of input; nil means the same.
	Long      *Price `json:"long,omitempty"`
	LongAbove int64  `json:"long_above,omitempty"`
}

// Of returns the price of the tokens of one request in US dollars.
func (p Price) Of(u llm.Usage) float64 {
	p = p.at(u.Input + u.CacheRead + u.CacheWrite)
	return (p.Input*float64(u.Input) + p.CacheRead*float64(u.CacheRead) +
		p.CacheWrite*float64(u.CacheWrite) + p.Output*float64(u.Output)) / 1e6
}

// Most returns the highest price that a request with these tokens can have, of which those of the
// input are an estimate: a third more may make the request a long one.
func (p Price) Most(input, output int64) float64 {
	p = p.at(input + input/3)
	return (max(p.Input, p.CacheWrite)*float64(input) + p.Output*float64(output)) / 1e6
}

// Affords returns how many tokens of output dollars pay for, after an estimate of the input as that
// of Most; negative if they do not pay for the input, and at most limit.
func (p Price) Affords(dollars float64, input, limit int64) int64 {
	rest := dollars - p.Most(input, 0)
	p = p.at(input + input/3)
	switch {
	case rest < 0:
		return -1
	case p.Output == 0:
		return limit
	}
	return int64(min(rest*1e6/p.Output, float64(limit)))
}

// at returns the price that holds for a request with this input.
func (p Price) at(input int64) Price {
	if p.Long != nil && input > p.LongAbove {
		return *p.Long
	}
	return p
}

// version matches what follows a prefix in the names of versions of the same model: a word, a date,
// or a number of several digits. One with a single digit is another model, such as claude-opus-5-5.
var version = lazyregexp.New(`^([-@](latest|preview|[0-9]{3,8}|` +
	`20[0-9]{2}-[0-9]{2}-[0-9]{2}|[0-9]{2}-[0-9]{2}|[0-9]{2}-20[0-9]{2}))*$`)

// priceOf returns the price of the model with this name, which fits e; nil if it is not known.
func (e Model) priceOf(name string) *Price {
	if _, rest, _ := strings.Cut(name, e.Prefix); !version().MatchString(rest) {
		return nil
	}
	return e.Price
}

// price parses a price. A long one has no other inside.
func (t *tableReader) price(isLong bool) (*Price, error) {
	p := Price{Input: -1, CacheRead: -1, CacheWrite: -1, Output: -1}
	err := t.object("a price", func(key string) (err error) {
		switch {
		case key == "input":
			p.Input, err = t.dollars()
		case key == "cache_read":
			p.CacheRead, err = t.dollars()
		case key == "cache_write":
			p.CacheWrite, err = t.dollars()
		case key == "output":
			p.Output, err = t.dollars()
		case key == "long" && !isLong:
			p.Long, err = t.price(true)
		case key == "long_above" && !isLong:
			p.LongAbove, err = t.tokens()
		default:
			err = errUnknownKey
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case p.Input < 0 || p.Output < 0:
		return nil, errors.New("input or output is missing")
	case (p.Long == nil) != (p.LongAbove == 0):
		return nil, errors.New("long and long_above need each other")
	}
	for _, cache := range []*float64{&p.CacheRead, &p.CacheWrite} {
		if *cache < 0 {
			*cache = p.Input
		}
	}
	return &p, nil
}

// maxDollars is the highest price of a million tokens in a table.
const maxDollars = 100_000

// dollars parses a price of a million tokens.
func (t *tableReader) dollars() (float64, error) {
	v, err := value[json.Number](t)
	if err != nil {
		return 0, err
	}
	d, err := v.Float64()
	if err != nil || d < 0 || d > maxDollars {
		return 0, fmt.Errorf("%.40s is not a number of dollars from 0 to %d", v, maxDollars)
	}
	return d, nil
}
