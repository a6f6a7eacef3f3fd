//go:build unix

package local

import "strings"

// varName returns the name in "NAME=value".
func varName(entry string) (string, bool) {
	i := strings.IndexByte(entry, '=')
	if i <= 0 {
		return "", false
	}
	return entry[:i], true
}

// completeVars adds the variables that every command needs: none on Unix.
func completeVars(list []string) []string { return list }
