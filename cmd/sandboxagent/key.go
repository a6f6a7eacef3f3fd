package main

import (
	"os"
	"slices"
)

// hideKeys takes the keys of models out of this process's variables, so that no command inherits
// them, and out of what the system shows of this process to others, unless the user passes one by
// name.
func hideKeys(pass []string) {
	var names []string
	for _, name := range keyVariables() {
		value, set := os.LookupEnv(name)
		if !set || slices.Contains(pass, name) {
			continue
		}
		_ = os.Unsetenv(name) // it fails for malformed names only
		if value != "" {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		hideFromSystem(names)
	}
}
