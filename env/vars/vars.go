// Package vars selects the environment variables that commands get ([Filter]), and recognizes and
// redacts secrets in names, values and text.
package vars

import (
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// Mode selects the environment variables that a Filter keeps.
type Mode string

// Modes of a Filter, from strict to lax: each keeps all that the one before keeps.
const (
	// None keeps nothing.
	None Mode = "none"
	// Core keeps the variables of CoreNames that Filtered keeps.
	Core Mode = "core"
	// Filtered keeps everything except variables for whose name IsSecretName, or for whose value
	// HasSecret, reports a secret.
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

// CoreNames returns the names that Core keeps on the system goos, named as by the Go toolchain; a
// star matches any characters. The caller owns the slice.
func CoreNames(goos string) []string {
	names := []string{
		"PATH", "HOME", "USER", "SHELL", "LANG", "LC_*", "TERM", "TMPDIR", "GOPATH", "CARGO_HOME",
		"NVM_DIR",
	}
	if goos == "windows" {
		// Programs need these to start and to find their profile and a temporary directory.
		names = append(names, "SYSTEMROOT", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP", "USERPROFILE")
	}
	return names
}

// Filter selects the environment variables that commands get. It is advisory: commands may read
// variables elsewhere, such as in another process of their user, and it finds only secrets with a
// known name or form. A nil filter and the zero value have the mode Filtered.
type Filter struct {
	// Mode is empty for Filtered. An unknown mode keeps nothing.
	Mode Mode
	// Pass lists names of variables that every mode keeps, whatever their value.
	Pass []string
	// OS is the system of the commands, named as by the Go toolchain; empty means the system of this
	// process. On windows the case of names is ignored.
	OS string
}

// Apply returns the entries "NAME=value" of vars that the filter keeps, in order. Every mode
// discards entries of another form, without a name or with a NUL byte. Git's settings in
// GIT_CONFIG_COUNT, GIT_CONFIG_KEY_n and GIT_CONFIG_VALUE_n are kept all or not at all, since git
// fails if one is missing. The result is never nil, and vars is not modified.
func (f *Filter) Apply(vars []string) []string {
	if f == nil {
		f = &Filter{}
	}
	kept := make([]string, 0, len(vars))
	partial := false
	for _, v := range vars {
		name, value, ok := Split(v)
		if ok && f.keeps(name, value) {
			kept = append(kept, v)
		} else {
			partial = partial || isGitSetting(name)
		}
	}
	if partial {
		kept = slices.DeleteFunc(kept, func(v string) bool {
			name, _, _ := strings.Cut(v, "=")
			return isGitSetting(name) && !f.passes(name)
		})
	}
	return kept
}

// isGitSetting reports whether the variable name has a part of settings of git.
func isGitSetting(name string) bool {
	return strings.HasPrefix(name, gitKey) || strings.HasPrefix(name, "GIT_CONFIG_VALUE_") ||
		name == "GIT_CONFIG_COUNT"
}

func (f *Filter) system() string { return cmp.Or(f.OS, runtime.GOOS) }

// passes reports whether f keeps name whatever the mode.
func (f *Filter) passes(name string) bool {
	goos := f.system()
	return slices.ContainsFunc(f.Pass, func(other string) bool {
		return fold(other, goos) == fold(name, goos)
	})
}

func (f *Filter) keeps(name, value string) bool {
	if f.passes(name) {
		return true
	}
	switch f.Mode {
	case All:
		return true
	case Filtered, "":
		return !IsSecretName(name) && !HasSecret(value)
	case Core:
		goos := f.system()
		name := fold(name, goos)
		core := slices.ContainsFunc(CoreNames(goos), func(pattern string) bool {
			prefix, star := strings.CutSuffix(pattern, "*")
			return name == pattern || star && strings.HasPrefix(name, prefix)
		})
		return core && !IsSecretName(name) && !HasSecret(value)
	default:
		return false
	}
}

// Dedup returns vars without entries that a later one of the same name replaces, in order. It
// compares names as the system goos does, named as by the Go toolchain. Entries not of the form
// "NAME=value" stay, for the caller to reject. The result is never nil, and vars is not modified.
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

// fold returns name in the form in which the system goos compares names.
func fold(name, goos string) string {
	if goos == "windows" {
		return strings.ToUpper(name)
	}
	return name
}
