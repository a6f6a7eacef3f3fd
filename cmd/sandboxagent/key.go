package main

import (
	"os"
	"slices"
)

// hideKeys takes the keys of models out of this process's variables, so that no command inherits them, and out of what
// the system shows of this process to others, unless the user passes one by name.
func hideKeys(pass []string) {
	var names []string
	for _, name := range keyVariables {
		if os.Getenv(name) != "" && !slices.Contains(pass, name) {
			_ = os.Unsetenv(name) // it fails for malformed names only
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		hideFromSystem(names)
	}
}
