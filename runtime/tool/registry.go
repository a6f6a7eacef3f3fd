package tool

import (
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
	output *argumentSchema // nil for any result
}

// NewRegistry returns a registry of tools.
func NewRegistry(tools ...Tool) (*Registry, error) {
	r := &Registry{tools: map[string]entry{}}
	for _, t := range tools {
		if err := r.Register(t); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// toolName matches the names that all providers accept.
var toolName = lazyregexp.New(`^[a-zA-Z0-9_-]{1,64}$`)

// Register adds t, or replaces the tool of the same name without changing the order. It returns an
// error, and leaves the registry unchanged, if a provider might reject the name, if Run is nil, or
// if a schema is malformed, refers to other documents or has a root that is not an object.
func (r *Registry) Register(t Tool) error {
	if !toolName().MatchString(t.Name) {
		return fmt.Errorf("register tool %s: a name must have 1 to 64 letters, digits, _ or -",
			shown(t.Name))
	}
	if t.Run == nil {
		return fmt.Errorf("register tool %s: Run is nil", t.Name)
	}
	t.Schema = slices.Clone(t.Schema)
	schema, err := lazySchema(t)
	if err != nil {
		return fmt.Errorf("register tool %s: %w", t.Name, err)
	}
	var output *argumentSchema
	if t.Output != nil {
		if output, err = compileSchema(t.Output); err != nil {
			return fmt.Errorf("register tool %s: the schema of its results: %w", t.Name, err)
		}
	}
	t.Aliases = maps.Clone(t.Aliases)
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.tools[t.Name]; !known {
		r.order = append(r.order, t.Name)
	}
	r.tools[t.Name] = entry{t, schema, output}
	return nil
}

// Unregister removes the tool name and reports whether it was registered.
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

// Get returns the tool called name.
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

// Definitions returns the specifications of the tools that are sent to a model, in the order of
// their registration.
func (r *Registry) Definitions() []llm.ToolSpec {
	r.mu.RLock()
	defer r.mu.RUnlock()
	specs := make([]llm.ToolSpec, 0, len(r.order))
	for _, name := range r.order {
		specs = append(specs, r.tools[name].tool.ToolSpec)
	}
	return specs
}

// Clone returns an independent registry with the same tools.
func (r *Registry) Clone() *Registry {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return &Registry{order: slices.Clone(r.order), tools: maps.Clone(r.tools)}
}
