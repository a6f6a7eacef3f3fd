package main

import "path/filepath"

// modulePath is the path of this module.
const modulePath = "github.com/sandboxagent/sandboxagent"

// helperName is the name of the helper, under which this program serves as one: an image may have
// it as its helper.
const helperName = "sandboxd"

// isImageHelper reports whether the program was started as the helper of an image.
func isImageHelper(args []string) bool {
	return len(args) > 0 && filepath.Base(args[0]) == helperName
}
