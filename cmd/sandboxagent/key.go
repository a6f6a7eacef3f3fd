package main

import (
	"os"
	"slices"
)

// hideKeys removes the API keys of models from the environment variables of this process, so that
// no command inherits them, and from the data of this process that the system shows to others,
// unless the user passes one by name.
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
