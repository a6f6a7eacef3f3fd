package local_test

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env/local"
)

// TestNothingProcessWide checks that the library leaves this process as it was.
func TestNothingProcessWide(t *testing.T) {
	limit := func() (l unix.Rlimit) {
		if err := unix.Prlimit(0, unix.RLIMIT_RTTIME, nil, &l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	before := limit()
	e := newEnv(t, local.Config{})
	output(t, e, sh("true"))
	var flag int32
	err := unix.Prctl(unix.PR_GET_CHILD_SUBREAPER, uintptr(unsafe.Pointer(&flag)), 0, 0, 0)
	if err != nil || flag != 0 {
		t.Errorf("sub-reaper flag %d, %v", flag, err)
	}
	if after := limit(); after != before {
		t.Errorf("limit %+v, before %+v", after, before)
	}
}
