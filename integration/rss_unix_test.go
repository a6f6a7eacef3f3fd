//go:build unix

package integration_test

import (
	"os"
	"runtime"
	"syscall"
)

// maxRSS is the most memory that an ended process used, in bytes.
func maxRSS(p *os.ProcessState) int64 {
	usage, ok := p.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" {
		return usage.Maxrss
	}
	return usage.Maxrss << 10
}
