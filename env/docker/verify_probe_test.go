package docker_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/verify"
)

// TestVerifyPromises derives the expectations from configurations.
func TestVerifyGuarantees(t *testing.T) {
	points := func(x verify.Expect) (all []string) {
		for _, m := range x.Mounts {
			all = append(all, m.Point)
		}
		return all
	}
	bind := []container.MountPoint{
		{Type: mount.TypeBind, Source: "/x", Destination: "/tmp"},
		{Type: mount.TypeVolume, Destination: "/workspace"},
	}
	mounted := func(m docker.Mount) docker.Config { return docker.Config{Mounts: []docker.Mount{m}} }
	all := []string{"/", "/usr", "/etc"}
	for name, test := range map[string]struct {
		config     docker.Config
		arch       string
		mounted    []container.MountPoint
		volumes    []string
		readOnly   []string
		filters    int // 2 if 0
		have, lack string
	}{
		"default":         {arch: "amd64", readOnly: all, have: "/tmp"},
		"other processor": {arch: "386", readOnly: all, filters: 1},
		"a volume":        {arch: "arm64", volumes: []string{"/data/"}, readOnly: all, have: "/data"},
		"a system volume": {
			volumes: []string{"/etc/"}, readOnly: []string{"/", "/usr"}, have: "/etc",
		},
		"memory at /etc": {
			config:   docker.Config{Tmpfs: []docker.Tmpfs{{Target: "/etc"}}},
			readOnly: []string{"/", "/usr"},
		},
		"a writable root": {config: docker.Config{WritableRoot: true}, readOnly: nil, have: "/"},
		"work at /usr":    {config: docker.Config{WorkDir: "/usr"}, readOnly: []string{"/", "/etc"}},
		"mount at /usr": {
			config:   mounted(docker.Mount{Source: "/x", Target: "/usr"}),
			readOnly: []string{"/", "/etc"},
		},
		"read-only at /usr": {
			config:   mounted(docker.Mount{Source: "/x", Target: "/usr", ReadOnly: true}),
			readOnly: all,
		},
		"an unexpected mount": {mounted: bind, readOnly: all, have: "/workspace", lack: "/tmp"},
		"a configured mount": {
			config:  mounted(docker.Mount{Source: "/x", Target: "/tmp"}),
			mounted: bind, readOnly: all, have: "/tmp",
		},
	} {
		t.Run(name, func(t *testing.T) {
			x, err := docker.Guarantees(test.config, test.arch, test.mounted, test.volumes...)
			if err != nil {
				t.Fatal(err)
			}
			if test.filters == 0 {
				test.filters = 2
			}
			diff := cmp.Diff(test.readOnly, x.ReadOnly)
			if diff != "" || x.Filters != test.filters || x.Vars == nil {
				t.Errorf("%d filters, variables %v, read-only %s", x.Filters, x.Vars, diff)
			}
			mounts := points(x)
			if test.have != "" && !slices.Contains(mounts, test.have) ||
				test.lack != "" && slices.Contains(mounts, test.lack) {
				t.Errorf("mounts %v", mounts)
			}
			if diff := cmp.Diff(x.Writable, x.Executable); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestVerifyFilterOfDaemon notes a daemon whose filter is not Docker's own.
func TestVerifyFilterOfDaemon(t *testing.T) {
	for option, want := range map[string]struct {
		noted, refused bool
	}{
		"name=seccomp,profile=default":    {},
		"name=seccomp,profile=builtin":    {},
		"name=seccomp,profile=/etc/x":     {noted: true},
		"name=seccomp,profile=unconfined": {refused: true},
		"name=apparmor":                   {refused: true},
	} {
		noted := false
		warn := func(line string) { noted = strings.Contains(line, "system call filter") }
		c := docker.Config{Options: remote.Options{Warn: warn}}
		err := docker.CheckSecurity(t.Context(), c, option)
		if noted != want.noted || (err != nil) != want.refused {
			t.Errorf("%s: noted %v, %v", option, noted, err)
		}
	}
}
