package docker_test

import (
	"slices"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/verify"
)

// TestVerifyPromises derives what is promised from configurations.
func TestVerifyPromises(t *testing.T) {
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
	for name, test := range map[string]struct {
		config     docker.Config
		arch       string
		mounted    []container.MountPoint
		volumes    []string
		readOnly   []string
		filters    int
		have, lack string
	}{
		"default": {
			arch: "amd64", readOnly: []string{"/", "/usr", "/etc"}, filters: 2,
			have: "/tmp",
		},
		"other processor": {arch: "386", readOnly: []string{"/", "/usr", "/etc"}, filters: 1},
		"a volume": {arch: "arm64", volumes: []string{"/data/"}, readOnly: []string{
			"/", "/usr",
			"/etc",
		}, filters: 2, have: "/data"},
		"a system volume": {
			volumes: []string{"/etc/"}, readOnly: []string{"/", "/usr"}, filters: 2,
			have: "/etc",
		},
		"memory at /etc": {
			config:   docker.Config{Tmpfs: []docker.Tmpfs{{Target: "/etc"}}},
			readOnly: []string{"/", "/usr"}, filters: 2,
		},
		"work at /usr": {
			config: docker.Config{WorkDir: "/usr"}, readOnly: []string{"/", "/etc"},
			filters: 2,
		},
		"mount at /usr": {config: docker.Config{Mounts: []docker.Mount{{
			Source: "/x",
			Target: "/usr",
		}}}, readOnly: []string{"/", "/etc"}, filters: 2},
		"to read at /usr": {config: docker.Config{Mounts: []docker.Mount{{
			Source: "/x", Target: "/usr",
			ReadOnly: true,
		}}}, readOnly: []string{"/", "/usr", "/etc"}, filters: 2},
		"an unasked mount": {
			mounted: bind, readOnly: []string{"/", "/usr", "/etc"}, filters: 2,
			have: "/workspace", lack: "/tmp",
		},
		"an asked mount": {
			config: docker.Config{Mounts: []docker.Mount{{Source: "/x", Target: "/tmp"}}}, mounted: bind,
			readOnly: []string{"/", "/usr", "/etc"}, filters: 2, have: "/tmp",
		},
	} {
		t.Run(name, func(t *testing.T) {
			x, err := docker.Promises(test.config, test.arch, test.mounted, test.volumes...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.readOnly, x.ReadOnly); diff != "" || x.Filters != test.filters ||
				x.Vars == nil {
				t.Errorf("%d filters, variables %v, read-only %s", x.Filters, x.Vars, diff)
			}
			if all := points(x); test.have != "" && !slices.Contains(all, test.have) || test.lack != "" &&
				slices.Contains(all, test.lack) {
				t.Errorf("mounts %v", all)
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
		err := docker.CheckSecurity(t.Context(), docker.Config{
			Options: remote.Options{Note: func(string) { noted = true }},
		},
			option)
		if noted != want.noted || (err != nil) != want.refused {
			t.Errorf("%s: noted %v, %v", option, noted, err)
		}
	}
}
