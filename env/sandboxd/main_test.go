package sandboxd

import "testing"

func TestCheckSocket(t *testing.T) {
	for _, tt := range []struct {
		name, system string
		ok           bool
	}{
		{"", "linux", true},
		{"/run/s", "linux", true},
		{"/run/s", "darwin", true},
		{"./@s", "darwin", true},
		{"@s", "linux", true},
		{"@s", "darwin", false},
		{"@", "linux", false},
	} {
		if err := checkSocket(tt.name, tt.system); (err == nil) != tt.ok {
			t.Errorf("%q on %s: %v", tt.name, tt.system, err)
		}
	}
}
