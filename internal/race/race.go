// Package race tells tests whether the race detector is built in, with which programs are several
// times slower and larger.
package race

import (
	"runtime/debug"
	"slices"
)

// Enabled reports whether the race detector is built in.
func Enabled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
