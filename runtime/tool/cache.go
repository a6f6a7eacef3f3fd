package tool

import (
	"encoding/json"
	"maps"
	"sync"
	"time"

	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// cacheTime is how long a result is given again. It is short, so that a model that looks at a file
// again and again sees what a program in the background, or a person, writes there.
const cacheTime = 2 * time.Second

// Cache keeps results of tools that read or search the files of an environment, for the case that
// the same call follows within 2 s. Any other call empties it, also one of a Fork, unless the tool
// only waits. Its methods may be called concurrently.
type Cache struct {
	changes *changes

	mu sync.Mutex
	// age is the state of changes to which kept belongs.
	age  uint64
	kept map[string]keptOutcome
}

type keptOutcome struct {
	Outcome
	until time.Time
}

// changes counts the calls that may change what others read.
type changes struct {
	mu sync.Mutex
	// age grows when such a call starts or ends.
	age     uint64
	running int
}

// NewCache returns an empty cache.
func NewCache() *Cache { return &Cache{changes: &changes{}} }

// Fork returns an empty cache for another agent in the same environment: they have no results in
// common, but a call that empties one empties both.
func (c *Cache) Fork() *Cache { return &Cache{changes: c.changes} }

// cached reports whether results of t are kept.
func (t Tool) cached() bool {
	return t.ReadOnly && t.NeedsEnv && !t.Waits &&
		(t.Class == policy.ClassRead || t.Class == policy.ClassSearch)
}

// Changing empties a cache, which may be nil, and its forks for work that may change files. They
// stay empty until the caller, once, calls ended.
func (c *Cache) Changing() (ended func()) {
	if c == nil {
		return func() {}
	}
	count := func(running int) {
		c.changes.mu.Lock()
		defer c.changes.mu.Unlock()
		c.changes.age++
		c.changes.running += running
	}
	count(1)
	return func() { count(-1) }
}

// now returns the age of the files, and false while a call may change them.
func (c *changes) now() (age uint64, still bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.age, c.running == 0
}

// get returns the outcome of an equal call, or else a function that keeps that of this one. A nil
// cache returns neither.
func (c *Cache) get(
	t Tool, args json.RawMessage, limit Limit,
) (earlier *Outcome, keep func(Outcome)) {
	if c == nil {
		return nil, nil
	}
	canonical := llm.ToolCall{Arguments: string(args)}.Canonical()
	text, err := json.Marshal([]any{t.Name, canonical, limit})
	age, still := c.changes.now()
	if err != nil || !still {
		return nil, nil
	}
	key := string(text)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.age != age || c.kept == nil {
		c.age, c.kept = age, make(map[string]keptOutcome)
	}
	if have, ok := c.kept[key]; ok && time.Now().Before(have.until) {
		return &have.Outcome, nil
	}
	until := time.Now().Add(cacheTime) // the files are read from now on
	return nil, func(o Outcome) {
		now, still := c.changes.now()
		c.mu.Lock()
		defer c.mu.Unlock()
		if still && now == age && c.age == age {
			maps.DeleteFunc(c.kept, func(_ string, k keptOutcome) bool { return time.Now().After(k.until) })
			c.kept[key] = keptOutcome{o, until}
		}
	}
}
