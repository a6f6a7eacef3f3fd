package verify

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/moby/sys/mountinfo"
)

// TestControlGroups reads limits of both versions of control groups, in namespaces and outside.
func TestControlGroups(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		full := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("two/pids.max", "1")
	write("two/group/pids.max", "2")
	write("one/pids.max", "3")
	write("one/group/pids.max", "4")
	mount := func(root, point, kind, options string) *mountinfo.Info {
		point = filepath.Join(dir, point)
		return &mountinfo.Info{Root: root, Mountpoint: point, FSType: kind, VFSOptions: options}
	}
	two := mount("/", "two", "cgroup2", "rw")
	one := func(root string) *mountinfo.Info { return mount(root, "one", "cgroup", "rw,pids") }
	empty, cpu := mount("/", "unified", "cgroup2", "rw"), mount("/", "one", "cgroup", "rw,cpu")
	for name, test := range map[string]struct {
		mounts []*mountinfo.Info
		paths  string
		want   string
	}{
		"two, in a namespace": {[]*mountinfo.Info{two}, "0::/\n", "1"},
		"two, all of it":      {[]*mountinfo.Info{two}, "0::/group\n", "2"},
		"one, in a namespace": {[]*mountinfo.Info{one("/")}, "3:pids:/\n0::/\n", "3"},
		"one, all of it":      {[]*mountinfo.Info{one("/")}, "3:memory,pids:/group\n", "4"},
		"one, only the group": {[]*mountinfo.Info{one("/group")}, "3:pids:/group\n", "3"},
		"both":                {[]*mountinfo.Info{empty, one("/")}, "3:pids:/group\n0::/\n", "4"},
		"above":               {[]*mountinfo.Info{two}, "0::/../../group\n", "2"},
		"none":                {nil, "0::/\n", ""},
		"no such controller":  {[]*mountinfo.Info{cpu}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (controlGroups{test.mounts, test.paths}).read("pids", "pids.max"); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestNumbers(t *testing.T) {
	for in, want := range map[string]string{
		"512": "512", "max": "max", "9223372036854771712": "max",
		"18446744073709551615": "max", "": "max", "0": "0",
	} {
		if got := number(in); got != want {
			t.Errorf("number(%q) = %q, want %q", in, got, want)
		}
	}
	for _, test := range []struct{ both, quota, period, want string }{
		{"200000 100000", "", "", "2"},
		{"50000 100000", "", "", "0.5"},
		{"max 100000", "", "", "max"},
		{"", "-1", "100000", "max"},
		{"", "150000", "100000", "1.5"},
		{"", "1", "0", ""},
		{"", "", "", ""},
		{"x y", "", "", ""},
	} {
		if got := cpus(test.both, test.quota, test.period); got != test.want {
			t.Errorf("cpus(%q, %q, %q) = %q, want %q", test.both, test.quota, test.period, got, test.want)
		}
	}
}
