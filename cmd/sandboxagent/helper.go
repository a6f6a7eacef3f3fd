package main

// helperArgument makes this program the helper of another one of its kind. Users have no use for it.
const helperArgument = "__sandboxd"

// isHelper reports whether the program was started as a helper.
func isHelper(args []string) bool { return len(args) > 1 && args[1] == helperArgument }
