package docker_test

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/verify"
)

// TestVerifyByDaemon starts processes in a container without a helper, with no shell in between.
func TestVerifyByDaemon(t *testing.T) {
	box := docker.ByDaemon(open(t, connect(t), docker.Config{Helper: docker.HelperOff}))
	run := func(timeout time.Duration, in string, argv ...string) (string, string, env.Result, error) {
		var out, said bytes.Buffer
		r, err := box.Exec(t.Context(), env.Command{Argv: argv, Stdin: strings.NewReader(in), Stdout: &out, Stderr: &said, Timeout: timeout})
		return out.String(), said.String(), r, err
	}
	if out, _, _, err := run(time.Minute, "", "/bin/grep", "PPid", "/proc/self/status"); out != "PPid:\t0\n" || err != nil {
		t.Errorf("%q, %v; want a process whose parent is outside", out, err)
	}
	out, said, r, err := run(time.Minute, "in", "/bin/sh", "-c", "cat; echo said >&2; exit 3")
	if out != "in" || said != "said\n" || r.ExitCode != 3 || err != nil {
		t.Errorf("%q, %q, %+v, %v", out, said, r, err)
	}
	if _, _, _, err := run(10*time.Millisecond, "", "/bin/sleep", "5"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want a timeout", err)
	}
}

// TestVerifyPromises derives what is promised from configurations.
func TestVerifyPromises(t *testing.T) {
	points := func(x verify.Expect) (all []string) {
		for _, m := range x.Mounts {
			all = append(all, m.Point)
		}
		return all
	}
	bind := []container.MountPoint{{Type: mount.TypeBind, Source: "/x", Destination: "/tmp"}, {Type: mount.TypeVolume, Destination: "/workspace"}}
	for name, test := range map[string]struct {
		config       docker.Config
		arch         string
		off          bool
		mounted      []container.MountPoint
		volumes      []string
		readOnly     []string
		filters      int
		have, lack   string
		withoutNames bool
	}{
		"default":          {arch: "amd64", readOnly: []string{"/", "/usr", "/etc"}, filters: 2, have: "/tmp"},
		"no helper":        {arch: "amd64", off: true, readOnly: []string{"/", "/usr", "/etc"}, filters: 1, lack: "/.sandboxagent", withoutNames: true},
		"other processor":  {arch: "386", readOnly: []string{"/", "/usr", "/etc"}, filters: 1},
		"a volume":         {arch: "arm64", volumes: []string{"/data/"}, readOnly: []string{"/", "/usr", "/etc"}, filters: 2, have: "/data"},
		"a system volume":  {volumes: []string{"/etc/"}, readOnly: []string{"/", "/usr"}, filters: 2, have: "/etc"},
		"memory at /etc":   {config: docker.Config{Tmpfs: []docker.Tmpfs{{Target: "/etc"}}}, readOnly: []string{"/", "/usr"}, filters: 2},
		"work at /usr":     {config: docker.Config{WorkDir: "/usr"}, readOnly: []string{"/", "/etc"}, filters: 2},
		"mount at /usr":    {config: docker.Config{Mounts: []docker.Mount{{Source: "/x", Target: "/usr"}}}, readOnly: []string{"/", "/etc"}, filters: 2},
		"to read at /usr":  {config: docker.Config{Mounts: []docker.Mount{{Source: "/x", Target: "/usr", ReadOnly: true}}}, readOnly: []string{"/", "/usr", "/etc"}, filters: 2},
		"an unasked mount": {mounted: bind, readOnly: []string{"/", "/usr", "/etc"}, filters: 2, have: "/workspace", lack: "/tmp"},
		"an asked mount": {
			config: docker.Config{Mounts: []docker.Mount{{Source: "/x", Target: "/tmp"}}}, mounted: bind, readOnly: []string{"/", "/usr", "/etc"}, filters: 2, have: "/tmp",
		},
	} {
		t.Run(name, func(t *testing.T) {
			x, err := docker.Promises(test.config, test.arch, !test.off, test.mounted, test.volumes...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.readOnly, x.ReadOnly); diff != "" || x.Filters != test.filters || (x.Vars == nil) != test.withoutNames {
				t.Errorf("%d filters, variables %v, read-only %s", x.Filters, x.Vars, diff)
			}
			if all := points(x); test.have != "" && !slices.Contains(all, test.have) || test.lack != "" && slices.Contains(all, test.lack) {
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
		err := docker.CheckSecurity(t.Context(), docker.Config{Note: func(string) { noted = true }}, option)
		if noted != want.noted || (err != nil) != want.refused {
			t.Errorf("%s: noted %v, %v", option, noted, err)
		}
	}
}
