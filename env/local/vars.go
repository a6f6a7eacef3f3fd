package local

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/proctree"
)

// variables is a list of "NAME=value" without duplicates, indexed by name.
type variables struct {
	list  []string
	index map[string]int
}

// baseVars returns the variables of every command: the inherited ones and those of cfg. Markers are
// inherited whatever the filter is, so that an outer environment finds the processes of an inner
// one.
func baseVars(cfg Config) (variables, error) {
	own := os.Environ()
	inherited := slices.Clone(cfg.Inherit.Apply(own))
	for _, v := range own {
		if strings.HasPrefix(v, proctree.MarkerPrefix) {
			inherited = append(inherited, v)
		}
	}
	inherited = slices.DeleteFunc(inherited, func(v string) bool {
		name, ok := varName(v)
		return !ok || strings.ContainsRune(v, 0) || name == "PWD" || name == "OLDPWD"
	})
	if err := checkVars(cfg.Vars); err != nil {
		return variables{}, err
	}
	base := variables{index: make(map[string]int)}
	base.list = base.with(append(inherited, cfg.Vars...))
	base.list = completeVars(base.list)
	for i, v := range base.list {
		name, _ := varName(v)
		base.index[name] = i
	}
	return base, nil
}

// with returns a new list with extra added. Of duplicates the last wins.
func (v variables) with(extra []string) []string {
	list := make([]string, len(v.list), len(v.list)+len(extra))
	copy(list, v.list)
	added := make(map[string]int, len(extra))
	for _, entry := range extra {
		name, _ := varName(entry)
		i, ok := v.index[name]
		if !ok {
			i, ok = added[name]
		}
		if ok {
			list[i] = entry
			continue
		}
		added[name] = len(list)
		list = append(list, entry)
	}
	return list
}

// lookupVar returns the value of a variable in a list without duplicates.
func lookupVar(list []string, name string) (string, bool) {
	for _, entry := range list {
		if n, ok := varName(entry); ok && n == name {
			return entry[len(n)+1:], true
		}
	}
	return "", false
}

// checkVars rejects malformed entries.
func checkVars(vars []string) error {
	for _, v := range vars {
		if _, ok := varName(v); !ok || strings.ContainsRune(v, 0) {
			// The value may be a secret, so the error has the name only.
			name, _, _ := strings.Cut(v, "=")
			return fmt.Errorf("variable %q: %w", name, fs.ErrInvalid)
		}
	}
	return nil
}
