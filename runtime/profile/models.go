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
	// UnknownContextWindow is assumed for models that are not listed: most served today have at least
	// this many tokens.
	UnknownContextWindow = 128_000
	// maxTokens is the largest figure that a table may have.
	maxTokens = 1_000_000_000
)

// Model is what is published about a model, or about all whose names begin alike.
type Model struct {
	// Provider is the ID of the profile, such as "openai".
	Provider string `json:"provider"`
	// Prefix is the model's name or the beginning of it, up to a character that is neither letter,
	// digit nor dot: "gpt-5" stands for gpt-5 and gpt-5-codex, and not for gpt-5.1.
	Prefix string `json:"prefix"`
	// ContextWindow is in tokens. Where a provider tells input and output apart, it is the input's.
	ContextWindow int64 `json:"context_window"`
	// MaxOutput is how many tokens one answer may have; 0 means unknown.
	MaxOutput int64 `json:"max_output,omitempty"`
	// KnowledgeCutoff is when the model's knowledge ends, such as "2025-08"; empty means unknown.
	KnowledgeCutoff string `json:"knowledge_cutoff,omitempty"`
	// Reasoning says that requests may ask for a reasoning effort, Vision that they may hold images.
	Reasoning bool `json:"reasoning"`
	Vision    bool `json:"vision"`
}

// Models is a table of models. The zero value knows none. It does not change, and may be used by
// several goroutines.
type Models struct {
	asOf string
	// list is sorted by provider and prefix.
	list []Model
}

// DefaultModels is the built-in table. It covers models of OpenAI, Anthropic and Google, with the
// figures of their own pages where they give any.
func DefaultModels() Models { return builtin() }

var builtin = sync.OnceValue(func() Models {
	m, err := parseModels(builtinModels, Models{})
	if err != nil {
		panic(fmt.Sprintf("profile: built-in models: %v", err))
	}
	return m
})

// ParseModels returns the built-in table with the entries of data over it. Data is a JSON object:
//
//	{"as_of": "2026-01-31", "models": [{"provider": "openai", "prefix": "my-model", "context_window": 65536}]}
//
// The keys of an entry are those of [Model] in JSON. Provider and prefix are required; what an
// entry does not give is taken from the built-in entry that fits its prefix, and is unknown or
// false if there is none. The context window must be known in the end. Other keys, keys given
// twice, two entries for one prefix, and figures out of range are errors, which name the line.
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

// AsOf is the day of the figures, as YYYY-MM-DD.
func (m Models) AsOf() string { return m.asOf }

// List returns all entries: by provider, those of one provider by prefix.
func (m Models) List() []Model { return slices.Clone(m.list) }

// Lookup returns the entry for the model name of a provider: of those whose prefix fits, the one
// with the longest. If none fits, what stands after the last slash of the name is looked up:
// "models/gemini-2.5-pro", and names with the maker in front.
func (m Models) Lookup(provider, name string) (Model, bool) {
	// Of prefixes of one name, the longer one stands below the shorter.
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

// tableReader reads a table token by token, so that an error can tell its line.
type tableReader struct {
	data []byte
	dec  *json.Decoder
}

// parseModels reads a table. Its entries take what they do not give from base.
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

var errUnknownKey = errors.New("there is no such key")

func lineAt(data []byte, offset int64) int {
	return 1 + bytes.Count(data[:min(offset, int64(len(data)))], []byte{'\n'})
}

// object reads an object, whose values each reads.
func (t *tableReader) object(what string, each func(key string) error) error {
	if token, err := t.dec.Token(); err != nil {
		return err
	} else if token != json.Delim('{') {
		return fmt.Errorf("%s must be an object", what)
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

// value reads one value of the type T, which is string, bool or json.Number.
func value[T string | bool | json.Number](t *tableReader) (T, error) {
	token, err := t.dec.Token()
	v, ok := token.(T)
	if err == nil && !ok {
		switch any(v).(type) {
		case string:
			err = errors.New("the value must be a text")
		case bool:
			err = errors.New("the value must be true or false")
		default:
			err = errors.New("the value must be a number")
		}
	}
	return v, err
}

// tokens reads a number of tokens.
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
			return nil, fmt.Errorf("entry %d: there is another one for %s %q", len(list)+1, e.Provider,
				e.Prefix)
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
		return fmt.Errorf("the provider %.40q is not known: there are %s", e.Provider,
			strings.Join(Providers(), ", "))
	case e.Prefix == "":
		return errors.New("the prefix is missing")
	case e.ContextWindow == 0:
		return errors.New("context_window is missing, and no built-in entry has it")
	case e.MaxOutput > e.ContextWindow:
		return fmt.Errorf("max_output %d is more than the context window of %d", e.MaxOutput,
			e.ContextWindow)
	}
	return nil
}
