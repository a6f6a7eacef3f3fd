package local_test

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env/local"
)

// TestNothingProcessWide checks that the library leaves this process as it was.
func TestNothingProcessWide(t *testing.T) {
	e := newEnv(t, local.Config{})
	output(t, e, sh("true"))
	var flag int32
	if err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&flag)), 0, 0, 0); err != nil || flag != 0 {
		t.Errorf("sub-reaper flag %d, %v", flag, err)
	}
}
