package tool

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// Registry holds the tools of a session in the order of their registration. It is safe for
// concurrent use.
type Registry struct {
	mu    sync.RWMutex
	order []string
	tools map[string]entry
}

type entry struct {
	tool   Tool
	schema func() (*argumentSchema, error)
}

// NewRegistry makes a registry of tools.
func NewRegistry(tools ...Tool) (*Registry, error) {
	r := &Registry{tools: map[string]entry{}}
	for _, t := range tools {
		if err := r.Register(t); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// toolName is what all providers accept.
var toolName = lazyregexp.New(`^[a-zA-Z0-9_-]{1,64}$`)

// Register adds t, or replaces the tool of the same name, whose place in the order it takes. A name
// that providers do not accept, a missing Run and a schema that is malformed, refers to other
// documents or whose root is not an object are errors; the registry then stays as it was.
func (r *Registry) Register(t Tool) error {
	if !toolName().MatchString(t.Name) {
		return fmt.Errorf("register tool %s: a name has 1 to 64 letters, digits, _ and -", shown(t.Name))
	}
	if t.Run == nil {
		return fmt.Errorf("register tool %s: %w", t.Name, errors.New("it has no Run"))
	}
	t.Schema = slices.Clone(t.Schema)
	schema, err := lazySchema(t.Schema)
	if err != nil {
		return fmt.Errorf("register tool %s: %w", t.Name, err)
	}
	t.Aliases = maps.Clone(t.Aliases)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.tools[t.Name]; !known {
		r.order = append(r.order, t.Name)
	}
	r.tools[t.Name] = entry{t, schema}
	return nil
}

// Unregister removes the tool name and reports whether it was there.
func (r *Registry) Unregister(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.tools[name]; !known {
		return false
	}
	delete(r.tools, name)
	r.order = slices.DeleteFunc(r.order, func(n string) bool { return n == name })
	return true
}

// Get returns the tool name.
func (r *Registry) Get(name string) (Tool, bool) {
	e, ok := r.get(name)
	return e.tool, ok
}

func (r *Registry) get(name string) (entry, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	e, ok := r.tools[name]
	return e, ok
}

// Names returns the names of the tools in the order of their registration.
func (r *Registry) Names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Clone(r.order)
}

// Definitions returns what a model is told of the tools, in the order of their registration.
func (r *Registry) Definitions() []llm.ToolSpec {
	r.mu.RLock()
	defer r.mu.RUnlock()
	specs := make([]llm.ToolSpec, 0, len(r.order))
	for _, name := range r.order {
		specs = append(specs, r.tools[name].tool.ToolSpec)
	}
	return specs
}

// Clone returns a registry of the same tools that changes independently.
func (r *Registry) Clone() *Registry {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return &Registry{order: slices.Clone(r.order), tools: maps.Clone(r.tools)}
}
