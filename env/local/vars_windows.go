package local

import (
	"os"
	"strings"
)

// varName returns the name in "NAME=value" in upper case, since names differ only by letters. The
// names of the variables that hold the current directory of a drive start with an equals sign.
func varName(entry string) (string, bool) {
	if entry == "" {
		return "", false
	}
	i := strings.IndexByte(entry[1:], '=')
	if i < 0 {
		return "", false
	}
	return strings.ToUpper(entry[:i+1]), true
}

// completeVars adds SYSTEMROOT, without which most programs do not start.
func completeVars(list []string) []string {
	if _, ok := lookupVar(list, "SYSTEMROOT"); !ok {
		list = append(list, "SYSTEMROOT="+os.Getenv("SYSTEMROOT"))
	}
	return list
}
