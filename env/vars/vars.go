// Package vars decides which environment variables reach commands, and recognises secrets in names,
// values and text.
package vars

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// Mode says which environment variables a Filter keeps.
type Mode string

// Modes of a Filter, from strict to lax: each keeps what the one before keeps, and more.
const (
	// None keeps nothing.
	None Mode = "none"
	// Core keeps what Filtered keeps of the names in CoreNames.
	Core Mode = "core"
	// Filtered keeps everything but variables whose name matches SecretNames and variables whose value
	// looks like a key or holds a URL with a password.
	Filtered Mode = "filtered"
	// All keeps everything.
	All Mode = "all"
)

// ParseMode returns the mode named s.
func ParseMode(s string) (Mode, error) {
	switch m := Mode(s); m {
	case Filtered, All, Core, None:
		return m, nil
	}
	return "", fmt.Errorf("variables mode %q: want one of filtered, all, core, none", s)
}

// CoreNames returns the names that Core keeps on the system goos, which is named as by the Go
// toolchain; a star stands for any characters. The slice is the caller's.
func CoreNames(goos string) []string {
	names := []string{
		"PATH", "HOME", "USER", "SHELL", "LANG", "LC_*", "TERM", "TMPDIR", "GOPATH", "CARGO_HOME",
		"NVM_DIR",
	}
	if goos == "windows" {
		// Without these, programs do not start or find neither their profile nor a temporary folder.
		names = append(names, "SYSTEMROOT", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE")
	}
	return names
}

// Filter decides which environment variables reach commands. It is advisory where commands can read
// the variables by other means, such as the memory of another process of their user; it knows
// secrets by their shape and finds no others. A nil filter means the same as the zero value:
// Filtered.
type Filter struct {
	// Mode is the rule; empty means Filtered. A mode that does not exist keeps nothing.
	Mode Mode
	// Pass are names of variables that are kept in every mode, whatever their value.
	Pass []string
	// OS is the system that the variables are for, named as by the Go toolchain; empty means the one
	// that this program runs on. On windows, names are compared without regard to case.
	OS string
}

// Apply returns those of vars, which are of the form "NAME=value", that the filter keeps, in their
// order. Entries of another form, without a name or with a NUL byte are dropped in every mode, as
// nothing can be decided about them. The result is never nil, and vars is not altered.
func (f *Filter) Apply(vars []string) []string {
	if f == nil {
		f = &Filter{}
	}
	kept := make([]string, 0, len(vars))
	for _, v := range vars {
		if name, value, ok := Split(v); ok && f.keeps(name, value) {
			kept = append(kept, v)
		}
	}
	return kept
}

func (f *Filter) keeps(name, value string) bool {
	goos := f.OS
	if goos == "" {
		goos = runtime.GOOS
	}
	same := func(other string) bool { return fold(other, goos) == fold(name, goos) }
	if slices.ContainsFunc(f.Pass, same) {
		return true
	}
	switch f.Mode {
	case All:
		return true
	case Filtered, "":
		return !IsSecretName(name) && !HasSecret(value)
	case Core:
		core := slices.ContainsFunc(CoreNames(goos), func(pattern string) bool {
			prefix, star := strings.CutSuffix(pattern, "*")
			return same(pattern) || star && strings.HasPrefix(fold(name, goos), prefix)
		})
		return core && !IsSecretName(name) && !HasSecret(value)
	default:
		return false
	}
}

// Dedup returns vars without the entries that a later one of the same name replaces, in their
// order. Names are compared as the system goos does, which is named as by the Go toolchain. Entries
// that are not of the form "NAME=value" stay, for the caller to refuse. The result is never nil,
// and vars is not altered.
func Dedup(vars []string, goos string) []string {
	kept := make([]string, 0, len(vars))
	seen := make(map[string]bool, len(vars))
	for _, v := range slices.Backward(vars) {
		if name, _, ok := Split(v); ok {
			name = fold(name, goos)
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

// Split splits "NAME=value"; ok is false for anything else.
func Split(v string) (name, value string, ok bool) {
	name, value, ok = strings.Cut(v, "=")
	return name, value, ok && name != "" && !strings.Contains(v, "\x00")
}

// fold is name in the form in which the system goos compares names.
func fold(name, goos string) string {
	if goos == "windows" {
		return strings.ToUpper(name)
	}
	return name
}
