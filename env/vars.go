package env

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/secret"
)

// VarMode says which environment variables a VarFilter keeps.
type VarMode string

// Modes of a VarFilter, from strict to lax: each keeps what the one before keeps, and more.
const (
	// VarsNone keeps nothing.
	VarsNone VarMode = "none"
	// VarsCore keeps what VarsFiltered keeps of the names in CoreVars.
	VarsCore VarMode = "core"
	// VarsFiltered keeps everything but variables whose name matches SecretVars and variables whose value looks like a
	// key or holds a URL with a password.
	VarsFiltered VarMode = "filtered"
	// VarsAll keeps everything.
	VarsAll VarMode = "all"
)

// ParseVarMode returns the mode named s.
func ParseVarMode(s string) (VarMode, error) {
	switch m := VarMode(s); m {
	case VarsFiltered, VarsAll, VarsCore, VarsNone:
		return m, nil
	}
	return "", fmt.Errorf("variables mode %q: want one of filtered, all, core, none", s)
}

// SecretVars returns the patterns of the names that VarsFiltered drops. A star stands for any characters, case does not
// matter. The slice is the caller's.
func SecretVars() []string { return secret.NamePatterns() }

// CoreVars returns the names that VarsCore keeps on the system goos, which is named as by the Go toolchain; a star stands
// for any characters. The slice is the caller's.
func CoreVars(goos string) []string {
	names := []string{
		"PATH", "HOME", "USER", "SHELL", "LANG", "LC_*", "TERM", "TMPDIR", "GOPATH", "CARGO_HOME", "NVM_DIR",
	}
	if goos == "windows" {
		// Without these, programs do not start or find neither their profile nor a temporary folder.
		names = append(names, "SYSTEMROOT", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE")
	}
	return names
}

// VarFilter decides which environment variables reach commands. It is advisory where commands can read the variables by
// other means, such as the memory of another process of their user; it knows secrets by their shape and finds no others.
// A nil filter means the same as the zero value: VarsFiltered.
type VarFilter struct {
	// Mode is the rule; empty means VarsFiltered. A mode that does not exist keeps nothing.
	Mode VarMode
	// Pass are names of variables that are kept in every mode, whatever their value.
	Pass []string
	// OS is the system that the variables are for, named as by the Go toolchain; empty means the one that this program
	// runs on. On windows, names are compared without regard to case.
	OS string
}

// Apply returns those of vars, which are of the form "NAME=value", that the filter keeps, in their order. Entries of
// another form, without a name or with a NUL byte are dropped in every mode, as nothing can be decided about them. The
// result is never nil, and vars is not altered.
func (f *VarFilter) Apply(vars []string) []string {
	if f == nil {
		f = &VarFilter{}
	}
	kept := make([]string, 0, len(vars))
	for _, v := range vars {
		if name, value, ok := splitVar(v); ok && f.keeps(name, value) {
			kept = append(kept, v)
		}
	}
	return kept
}

func (f *VarFilter) keeps(name, value string) bool {
	goos := f.OS
	if goos == "" {
		goos = runtime.GOOS
	}
	same := func(other string) bool { return foldVar(other, goos) == foldVar(name, goos) }
	if slices.ContainsFunc(f.Pass, same) {
		return true
	}
	switch f.Mode {
	case VarsAll:
		return true
	case VarsFiltered, "":
		return !secret.Name(name) && !secret.Value(value)
	case VarsCore:
		core := slices.ContainsFunc(CoreVars(goos), func(pattern string) bool {
			prefix, star := strings.CutSuffix(pattern, "*")
			return same(pattern) || star && strings.HasPrefix(foldVar(name, goos), prefix)
		})
		return core && !secret.Name(name) && !secret.Value(value)
	default:
		return false
	}
}

// DedupVars returns vars without the entries that a later one of the same name replaces, in their order. Names are
// compared as the system goos does, which is named as by the Go toolchain. Entries that are not of the form "NAME=value"
// stay, for the caller to refuse. The result is never nil, and vars is not altered.
func DedupVars(vars []string, goos string) []string {
	kept := make([]string, 0, len(vars))
	seen := make(map[string]bool, len(vars))
	for _, v := range slices.Backward(vars) {
		if name, _, ok := splitVar(v); ok {
			name = foldVar(name, goos)
			if seen[name] {
				continue
			}
			seen[name] = true
		}
		kept = append(kept, v)
	}
	slices.Reverse(kept)
	return kept
}

// splitVar splits "NAME=value"; ok is false for anything else.
func splitVar(v string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(v, "=")
	return name, value, ok && name != "" && !strings.Contains(v, "\x00")
}

// foldVar is name in the form in which the system goos compares names.
func foldVar(name, goos string) string {
	if goos == "windows" {
		return strings.ToUpper(name)
	}
	return name
}
