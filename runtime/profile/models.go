package profile

import (
	"bytes"
	"cmp"
	_ "embed" // For the built-in table.
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

//go:embed models.json
var builtinModels []byte

const (
	// UnknownContextWindow is the context window, in tokens, of models that are not listed. Most
	// current models have at least this many.
	UnknownContextWindow = 128_000
	// maxTokens is the largest number of tokens in a table.
	maxTokens = 1_000_000_000
)

// Model holds the published figures of a model, or of all models whose names have the same prefix.
type Model struct {
	// Provider is the ID of the profile, such as "openai".
	Provider string `json:"provider"`
	// Prefix is the model's name or the start of it, up to a character that is neither letter, digit
	// nor dot: "gpt-5" matches gpt-5 and gpt-5-codex, and not gpt-5.1.
	Prefix string `json:"prefix"`
	// ContextWindow is in tokens. Where a provider limits input and output separately, it is the
	// input's.
	ContextWindow int64 `json:"context_window"`
	// MaxOutput bounds the tokens of an answer; 0 means unknown.
	MaxOutput int64 `json:"max_output,omitempty"`
	// KnowledgeCutoff is the last month of the model's knowledge, such as "2025-08"; empty means
	// unknown.
	KnowledgeCutoff string `json:"knowledge_cutoff,omitempty"`
	// Reasoning reports whether requests may set a reasoning effort, Vision whether they may contain
	// images.
	Reasoning bool `json:"reasoning"`
	Vision    bool `json:"vision"`
	// Price holds for the model whose name is Prefix, and for versions of it: names that continue it
	// by dates and numbers, latest or preview. Others have a price of their own. Nil means unknown.
	// Nobody changes it.
	Price *Price `json:"price,omitempty"`
}

// Models is a table of models. The zero value is empty. A table is immutable and safe for
// concurrent use.
type Models struct {
	asOf string
	// list is sorted by provider and prefix.
	list []Model
}

// DefaultModels returns the built-in table. It covers models of OpenAI, Anthropic and Google, with
// the figures that they publish.
func DefaultModels() Models { return builtin() }

var builtin = sync.OnceValue(func() Models {
	var table struct { // a test checks it as ParseModels does
		AsOf   string  `json:"as_of"`
		Models []Model `json:"models"`
	}
	if err := json.Unmarshal(builtinModels, &table); err != nil {
		panic(fmt.Sprintf("profile: built-in models: %v", err))
	}
	m := Models{table.AsOf, table.Models}
	m.sort()
	return m
})

// ParseModels returns the built-in table overridden by the entries of data, a JSON object:
//
//	{"as_of": "2026-01-31", "models": [
//		{"provider": "openai", "prefix": "my-model", "context_window": 65536}]}
//
// The keys of an entry are those of [Model] in JSON. Provider and prefix are required. A price
// needs input and output; a missing price of the cache is that of input. Other missing keys default
// to the built-in entry that matches the prefix, and without one to unknown or false; only the
// context window must then be in the entry. Unknown keys, repeated keys, two entries for one
// prefix, and figures out of range are errors, which name the line.
func ParseModels(data []byte) (Models, error) {
	base := DefaultModels()
	m, err := parseModels(data, base)
	if err != nil {
		return Models{}, err
	}
	m.asOf = cmp.Or(m.asOf, base.asOf)
	for _, old := range base.list {
		if !slices.ContainsFunc(m.list, old.same) {
			m.list = append(m.list, old)
		}
	}
	m.sort()
	return m, nil
}

// AsOf returns the day of the figures, as YYYY-MM-DD.
func (m Models) AsOf() string { return m.asOf }

// List returns all entries, sorted by provider and prefix.
func (m Models) List() []Model { return slices.Clone(m.list) }

// Lookup returns the entry of a provider with the longest prefix that matches the model name. If
// none matches, it looks up the part of the name after the last slash: servers put "models/" or the
// maker of a model in front.
func (m Models) Lookup(provider, name string) (Model, bool) {
	// Of two prefixes of one name, the longer one is sorted after the shorter.
	for _, e := range slices.Backward(m.list) {
		if e.Provider == provider && e.fits(name) {
			return e, true
		}
	}
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return m.Lookup(provider, name[i+1:])
	}
	return Model{}, false
}

func (m Models) sort() {
	slices.SortFunc(m.list, func(a, b Model) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Prefix, b.Prefix))
	})
}

func (e Model) same(other Model) bool {
	return e.Provider == other.Provider && e.Prefix == other.Prefix
}

func (e Model) fits(name string) bool {
	rest, ok := strings.CutPrefix(name, e.Prefix)
	r, _ := utf8.DecodeRuneInString(rest)
	return ok && (rest == "" || r != '.' && !unicode.IsLetter(r) && !unicode.IsDigit(r))
}

// tableReader parses a table token by token, so that errors can name the line.
type tableReader struct {
	data []byte
	dec  *json.Decoder
}

// parseModels parses a table. Missing keys of its entries default to base.
func parseModels(data []byte, base Models) (Models, error) {
	var all json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return Models{}, fmt.Errorf("models: line %d: %w", lineAt(data, syntax.Offset), err)
		}
		return Models{}, fmt.Errorf("models: %w", err)
	}
	t := &tableReader{data: data, dec: json.NewDecoder(bytes.NewReader(data))}
	t.dec.UseNumber()
	var m Models
	err := t.object("a table of models", func(key string) (err error) {
		switch key {
		case "as_of":
			if m.asOf, err = value[string](t); err != nil {
				return err
			}
			if _, err := time.Parse(time.DateOnly, m.asOf); err != nil {
				return fmt.Errorf("%.40q is not a day such as 2026-01-31", m.asOf)
			}
			return nil
		case "models":
			m.list, err = t.entries(base)
			return err
		default:
			return errUnknownKey
		}
	})
	if err != nil {
		return Models{}, fmt.Errorf("models: line %d: %w", lineAt(data, t.dec.InputOffset()), err)
	}
	m.sort()
	return m, nil
}

var errUnknownKey = errors.New("unknown key")

func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte{'\n'})
}

// object parses an object; each parses the value of a key. Errors name the object.
func (t *tableReader) object(name string, each func(key string) error) error {
	if token, err := t.dec.Token(); err != nil {
		return err
	} else if token != json.Delim('{') {
		return fmt.Errorf("%s must be an object", name)
	}
	var seen []string
	for t.dec.More() {
		key, err := value[string](t)
		if err != nil {
			return err
		}
		if slices.Contains(seen, key) {
			return fmt.Errorf("the key %.40q is given twice", key)
		}
		seen = append(seen, key)
		if err := each(key); err != nil {
			return fmt.Errorf("%.40q: %w", key, err)
		}
	}
	_, err := t.dec.Token()
	return err
}

// value parses one value of the type T.
func value[T string | bool | json.Number](t *tableReader) (T, error) {
	token, err := t.dec.Token()
	v, ok := token.(T)
	if err == nil && !ok {
		switch any(v).(type) {
		case string:
			err = errors.New("the value must be a string")
		case bool:
			err = errors.New("the value must be true or false")
		default:
			err = errors.New("the value must be a number")
		}
	}
	return v, err
}

// tokens parses a number of tokens.
func (t *tableReader) tokens() (int64, error) {
	v, err := value[json.Number](t)
	if err != nil {
		return 0, err
	}
	n, err := v.Int64()
	if err != nil || n < 1 || n > maxTokens {
		return 0, fmt.Errorf("%.40s is not a whole number from 1 to %d", v, maxTokens)
	}
	return n, nil
}

func (t *tableReader) entries(base Models) ([]Model, error) {
	if token, err := t.dec.Token(); err != nil {
		return nil, err
	} else if token != json.Delim('[') {
		return nil, errors.New("the value must be a list")
	}
	var list []Model
	for t.dec.More() {
		e, err := t.entry(base)
		if err != nil {
			return nil, fmt.Errorf("entry %d: %w", len(list)+1, err)
		}
		if slices.ContainsFunc(list, e.same) {
			return nil, fmt.Errorf("entry %d: another entry is for %s %q, too",
				len(list)+1, e.Provider, e.Prefix)
		}
		list = append(list, e)
	}
	_, err := t.dec.Token()
	return list, err
}

func (t *tableReader) entry(base Models) (Model, error) {
	var e Model
	var reasoning, vision *bool
	err := t.object("an entry", func(key string) (err error) {
		switch key {
		case "provider":
			e.Provider, err = value[string](t)
		case "prefix":
			e.Prefix, err = value[string](t)
		case "context_window":
			e.ContextWindow, err = t.tokens()
		case "max_output":
			e.MaxOutput, err = t.tokens()
		case "knowledge_cutoff":
			if e.KnowledgeCutoff, err = value[string](t); err == nil && !isMonth(e.KnowledgeCutoff) {
				err = fmt.Errorf("%.40q is not a month such as 2025-08", e.KnowledgeCutoff)
			}
		case "reasoning":
			reasoning, err = pointer(value[bool](t))
		case "vision":
			vision, err = pointer(value[bool](t))
		case "price":
			e.Price, err = t.price(false)
		default:
			err = errUnknownKey
		}
		return err
	})
	if err != nil {
		return e, err
	}
	known, _ := base.Lookup(e.Provider, e.Prefix)
	e.ContextWindow = cmp.Or(e.ContextWindow, known.ContextWindow)
	e.MaxOutput = cmp.Or(e.MaxOutput, min(known.MaxOutput, e.ContextWindow))
	e.KnowledgeCutoff = cmp.Or(e.KnowledgeCutoff, known.KnowledgeCutoff)
	e.Price = cmp.Or(e.Price, known.priceOf(e.Prefix))
	e.Reasoning, e.Vision = *cmp.Or(reasoning, &known.Reasoning), *cmp.Or(vision, &known.Vision)
	return e, e.check()
}

func pointer[T any](v T, err error) (*T, error) { return &v, err }

func isMonth(s string) bool {
	_, err := time.Parse("2006-01", s)
	return err == nil
}

func (e Model) check() error {
	switch {
	case family(e.Provider) == nil:
		return fmt.Errorf("unknown provider %.40q (known: %s)", e.Provider,
			strings.Join(Providers(), ", "))
	case e.Prefix == "":
		return errors.New("the prefix is missing")
	case e.ContextWindow == 0:
		return errors.New("context_window is missing, and no built-in entry has it")
	case e.MaxOutput > e.ContextWindow:
		return fmt.Errorf("max_output %d is more than the context window of %d",
			e.MaxOutput, e.ContextWindow)
	}
	return nil
}
