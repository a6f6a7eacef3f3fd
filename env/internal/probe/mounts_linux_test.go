package probe

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadMounts(t *testing.T) {
	text := "10 1 0:5 / / ro,relatime - overlay overlay rw,lowerdir=x\n" +
		"11 1 0:6 /a /with\\040blank rw,nosuid shared:1 master:2 - tmpfs tmpfs rw,size=1k\n" +
		"short line\n12 1 0:7 / /x rw - tmpfs\n"
	want := []mountLine{
		{root: "/", point: "/", kind: "overlay", options: "ro,relatime", super: "rw,lowerdir=x"},
		{root: "/a", point: "/with blank", kind: "tmpfs", options: "rw,nosuid", super: "rw,size=1k"},
	}
	if diff := cmp.Diff(want, readMounts(text), cmp.AllowUnexported(mountLine{})); diff != "" {
		t.Error(diff)
	}
}

// TestControlGroups reads limits where the versions of control groups and their namespaces put them.
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
	two := func(root string) mountLine {
		return mountLine{root: root, point: filepath.Join(dir, "two"), kind: "cgroup2", super: "rw"}
	}
	one := func(root string) mountLine {
		return mountLine{root: root, point: filepath.Join(dir, "one"), kind: "cgroup", super: "rw,pids"}
	}
	empty := mountLine{root: "/", point: filepath.Join(dir, "unified"), kind: "cgroup2", super: "rw"}
	for name, test := range map[string]struct {
		groups controlGroups
		want   string
	}{
		"two, own namespace":      {controlGroups{[]mountLine{two("/")}, "0::/\n"}, "1"},
		"two, all of it":          {controlGroups{[]mountLine{two("/")}, "0::/own\n"}, "2"},
		"one, own namespace":      {controlGroups{[]mountLine{one("/")}, "3:pids:/\n0::/\n"}, "3"},
		"one, all of it":          {controlGroups{[]mountLine{one("/")}, "3:memory,pids:/box\n"}, "4"},
		"one, only the own group": {controlGroups{[]mountLine{one("/box")}, "3:pids:/box\n"}, "3"},
		"both":                    {controlGroups{[]mountLine{empty, one("/")}, "3:pids:/box\n0::/\n"}, "4"},
		"above":                   {controlGroups{[]mountLine{two("/")}, "0::/../../own\n"}, "2"},
		"none":                    {controlGroups{nil, "0::/\n"}, ""},
		"no such controller":      {controlGroups{[]mountLine{{root: "/", point: filepath.Join(dir, "one"), kind: "cgroup", super: "rw,cpu"}}, ""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.groups.read("pids", "pids.max"); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestNumbers(t *testing.T) {
	for in, want := range map[string]string{"512": "512", "max": "max", "9223372036854771712": "max", "18446744073709551615": "max", "": "max", "0": "0"} {
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
