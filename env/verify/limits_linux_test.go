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
	write("two/own/pids.max", "2")
	write("one/pids.max", "3")
	write("one/box/pids.max", "4")
	two := func(root string) *mountinfo.Info {
		return &mountinfo.Info{
			Root: root, Mountpoint: filepath.Join(dir, "two"), FSType: "cgroup2",
			VFSOptions: "rw",
		}
	}
	one := func(root string) *mountinfo.Info {
		return &mountinfo.Info{
			Root: root, Mountpoint: filepath.Join(dir, "one"), FSType: "cgroup",
			VFSOptions: "rw,pids",
		}
	}
	empty := &mountinfo.Info{
		Root: "/", Mountpoint: filepath.Join(dir, "unified"), FSType: "cgroup2",
		VFSOptions: "rw",
	}
	for name, test := range map[string]struct {
		groups controlGroups
		want   string
	}{
		"two, own namespace": {controlGroups{[]*mountinfo.Info{two("/")}, "0::/\n"}, "1"},
		"two, all of it":     {controlGroups{[]*mountinfo.Info{two("/")}, "0::/own\n"}, "2"},
		"one, own namespace": {controlGroups{[]*mountinfo.Info{one("/")}, "3:pids:/\n0::/\n"}, "3"},
		"one, all of it": {
			controlGroups{[]*mountinfo.Info{one("/")}, "3:memory,pids:/box\n"},
			"4",
		},
		"one, only the own group": {controlGroups{[]*mountinfo.Info{one("/box")}, "3:pids:/box\n"}, "3"},
		"both": {controlGroups{
			[]*mountinfo.Info{empty, one("/")},
			"3:pids:/box\n0::/\n",
		}, "4"},
		"above": {controlGroups{[]*mountinfo.Info{two("/")}, "0::/../../own\n"}, "2"},
		"none":  {controlGroups{nil, "0::/\n"}, ""},
		"no such controller": {controlGroups{[]*mountinfo.Info{{
			Root:       "/",
			Mountpoint: filepath.Join(dir, "one"), FSType: "cgroup", VFSOptions: "rw,cpu",
		}}, ""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.groups.read("pids", "pids.max"); got != test.want {
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
