package proctree

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseLimits(t *testing.T) {
	const head = "Limit                     Soft Limit           Hard Limit           Units     \n" +
		"Max cpu time              unlimited            5                    seconds   \n"
	for _, tt := range []struct {
		name, text string
		want       uint64
		ok         bool
	}{
		{"both", head + "Max realtime timeout      7                    1152921504606846975  us       " +
			" \n", 1152921504606846975, true},
		{"soft is unlimited", head + "Max realtime timeout      unlimited            8                " +
			"    us        \n", 8, true},
		{"unlimited", head + "Max realtime timeout      unlimited            unlimited            us  " +
			"      \n", 0, false},
		{"missing", head, 0, false},
		{"cut", head + "Max realtime timeout      7", 0, false},
		{"too large", head + "Max realtime timeout      7  99999999999999999999 us\n", 0, false},
		{"empty", "", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := parseLimits([]byte(tt.text)); got != tt.want || ok != tt.ok {
				t.Errorf("%d, %v", got, ok)
			}
		})
	}
}

// TestParseLimitsOfKernel compares the text of the kernel with its system call.
func TestParseLimitsOfKernel(t *testing.T) {
	data, err := os.ReadFile("/proc/self/limits")
	if err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_RTTIME, nil, &limit); err != nil {
		t.Fatal(err)
	}
	got, ok := parseLimits(data)
	if ok != (limit.Max != unix.RLIM_INFINITY) || ok && got != limit.Max {
		t.Errorf("%d, %v, want %d", got, ok, limit.Max)
	}
}

func FuzzParseLimits(f *testing.F) {
	f.Add([]byte("Max realtime timeout      7                    8  us\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if limit, ok := parseLimits(data); limit != 0 && !ok {
			t.Errorf("no limit is set, but %d was returned", limit)
		}
	})
}
