package docker_test

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/verify"
)

// weakening is a container that is weaker in one respect, and what of it is found to be broken.
// Some of it may be, depending on the kernel and its settings.
type weakening struct {
	name      string
	weaken    func(*container.Config, *container.HostConfig)
	vars      []string
	want, may []string
}

type (
	containerConfig = container.Config
	hostConfig      = container.HostConfig
)

// onHost makes a weakening of one that only concerns the host's part of a container.
func onHost(change func(*hostConfig)) func(*containerConfig, *hostConfig) {
	return func(_ *containerConfig, h *hostConfig) { change(h) }
}

// asRoot lets commands run as root, with more capabilities than none.
func asRoot(capabilities ...string) func(*containerConfig, *hostConfig) {
	return func(c *containerConfig, h *hostConfig) { c.User, h.CapAdd = "0:0", capabilities }
}

// bound shows a directory or file of the daemon's machine.
func bound(source, target string) func(*containerConfig, *hostConfig) {
	return onHost(func(h *hostConfig) {
		h.Mounts = append(h.Mounts,
			mount.Mount{Type: mount.TypeBind, Source: source, Target: target, ReadOnly: true})
	})
}

// instead shows a directory of the daemon's machine where a volume would be.
func instead(target, source string) func(*containerConfig, *hostConfig) {
	return onHost(func(h *hostConfig) {
		i := slices.IndexFunc(h.Mounts, func(m mount.Mount) bool { return m.Target == target })
		h.Mounts[i] = mount.Mount{Type: mount.TypeBind, Source: source, Target: target}
	})
}

// isInitial reports whether a namespace of this process is the kernel's first.
func isInitial(t *testing.T, kind string) bool {
	t.Helper()
	link, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseUint(strings.Trim(strings.TrimPrefix(link, kind+":"), "[]"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return number < 0xF0000000
}

// rights are the weakenings of the rights of a command.
func rights() []weakening {
	// The directories belong to the configured user, and root without capabilities is like any other.
	root := []string{"user", "writable-directories", "executable-directories"}
	capable := append([]string{"capabilities"}, root...)
	return []weakening{
		{
			name: "a capability", weaken: onHost(func(h *hostConfig) { h.CapAdd = []string{"NET_RAW"} }),
			want: []string{"capabilities"},
		},
		{
			// the helper has no filter then
			name: "new privileges", weaken: onHost(func(h *hostConfig) { h.SecurityOpt = nil }),
			want: []string{"no-new-privileges", "system-call-filter"},
		},
		{
			name: "no filter", weaken: onHost(func(h *hostConfig) {
				h.SecurityOpt = append(h.SecurityOpt, "seccomp=unconfined")
			}),
			want: []string{"system-call-filter"},
		},
		{
			name: "privileged", weaken: onHost(func(h *hostConfig) { h.Privileged = true }),
			want: []string{"capabilities", "system-call-filter"},
		},
		{name: "root", weaken: asRoot(), want: root},
		{
			name: "root with tracing", weaken: asRoot("SYS_PTRACE"),
			want: append([]string{"helper-memory"}, capable...), may: []string{"system-call-filter"},
		},
		{
			name: "a filter of little", weaken: onHost(func(h *hostConfig) {
				h.SecurityOpt = append(h.SecurityOpt, "seccomp="+littleFilter)
			}),
			want: []string{"system-call-filter"},
		},
		{
			name: "a group", weaken: onHost(func(h *hostConfig) { h.GroupAdd = []string{"0"} }),
			want: []string{"user"},
		},
		{
			name: "a variable", weaken: onHost(func(*hostConfig) {}), vars: []string{"AWS_PROFILE=x"},
			want: []string{"variables"},
		},
	}
}

// littleFilter refuses a few calls only.
const littleFilter = `{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[
	{"names":["keyctl","bpf","perf_event_open","syslog","unshare","mount"],"action":"SCMP_ACT_ERRNO"},
	{"names":["clone"],"action":"SCMP_ACT_ERRNO","args":[
		{"index":0,"value":268435456,"valueTwo":268435456,"op":"SCMP_CMP_MASKED_EQ"}]}]}`

// directories are the weakenings of the files that a command sees and writes.
func directories(t *testing.T, canary verify.Host) []weakening {
	t.Helper()
	socket, secrets := filepath.Join(daemonFolder(t), "docker.sock"), daemonFolder(t)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := os.WriteFile(filepath.Join(secrets, "token"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	//nolint:gosec // another user reads it
	if err := os.Chmod(secrets, 0o755); err != nil {
		t.Fatal(err)
	}
	// Each container has its own, for probes of others would be seen in it.
	open := func() string {
		dir := daemonFolder(t)
		if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // another user writes to it
			t.Fatal(err)
		}
		return dir
	}
	tmp := open()
	return []weakening{
		{
			name: "writable root", weaken: onHost(func(h *hostConfig) { h.ReadonlyRootfs = false }),
			want: []string{"root-file-system"},
		},
		{
			name:   "a writable helper",
			weaken: onHost(func(h *hostConfig) { h.Mounts[len(h.Mounts)-1].ReadOnly = false }),
			want:   []string{"helper-volume"},
		},
		{
			name:   "no programs in /tmp",
			weaken: onHost(func(h *hostConfig) { h.Tmpfs = map[string]string{"/tmp": "noexec"} }),
			want:   []string{"executable-directories"},
		},
		{
			name: "read-only /tmp", weaken: onHost(func(h *hostConfig) { h.Tmpfs = nil }),
			want: []string{"writable-directories", "executable-directories"},
		},
		{
			name: "a socket", weaken: bound(socket, "/run/docker.sock"), want: []string{"mounts", "sockets"},
		},
		{
			name: "a token", weaken: bound(secrets, "/run/secrets/kubernetes.io/serviceaccount"),
			want: []string{"mounts", "credentials"},
		},
		{name: "a directory of the host", weaken: bound("/etc", "/mnt"), want: []string{"mounts"}},
		{
			name:   "a directory with a file of the host",
			weaken: bound(filepath.Dir(canary.Files[0]), filepath.Dir(canary.Files[0])),
			want:   []string{"mounts", "host-files"},
		},
		{
			name: "the working directory of the host", weaken: instead("/workspace", open()),
			want: []string{"mounts"},
		},
		{
			name: "the home directory of the host", weaken: instead("/home/sandbox", open()),
			want: []string{"mounts"},
		},
		{name: "/tmp of the host", weaken: onHost(func(h *hostConfig) {
			h.Tmpfs = nil
			h.Mounts = append(h.Mounts, mount.Mount{Type: mount.TypeBind, Source: tmp, Target: "/tmp"})
		}), want: []string{"mounts"}},
		{name: "memory of the host", weaken: onHost(func(h *hostConfig) {
			h.Tmpfs = nil
			h.Mounts = append(h.Mounts,
				mount.Mount{Type: mount.TypeBind, Source: "/dev/shm", Target: "/tmp"})
		}), want: []string{"mounts"}, may: []string{"executable-directories"}},
		{
			name:   "devices and rights in /tmp",
			weaken: onHost(func(h *hostConfig) { h.Tmpfs = map[string]string{"/tmp": "rw,exec,suid,dev"} }),
			want:   []string{"mounts"},
		},
		{
			name: "a file of the host", weaken: bound(canary.Files[0], canary.Files[0]),
			want: []string{"mounts", "host-files"},
		},
	}
}

// namespaces are the weakenings of an environment's namespaces.
func namespaces(t *testing.T) []weakening {
	t.Helper()
	all := []weakening{
		{
			// the helper has no filter then
			name: "pid", weaken: onHost(func(h *hostConfig) { h.PidMode = "host" }),
			want: []string{"system-call-filter"},
		},
		{name: "ipc", weaken: onHost(func(h *hostConfig) { h.IpcMode = "host" })},
		{name: "uts", weaken: func(c *containerConfig, h *hostConfig) {
			h.UTSMode, c.Hostname = "host", ""
		}},
		{name: "cgroup", weaken: onHost(func(h *hostConfig) { h.CgroupnsMode = "host" })},
		{
			name: "net", weaken: onHost(func(h *hostConfig) { h.NetworkMode = "host" }),
			want: []string{
				"network-routes", "metadata-service", "name-service",
				"host-loopback",
			},
		},
	}
	for i, w := range all {
		if isInitial(t, w.name) {
			all[i].want = append(w.want, "namespaces")
		}
		all[i].name = "the machine's namespace " + w.name
	}
	return all
}

// bounds are the weakenings of the limits of a command.
func bounds() []weakening {
	pids := int64(4096)
	return []weakening{
		{
			name: "more processes", weaken: onHost(func(h *hostConfig) { h.PidsLimit = &pids }),
			want: []string{"processes-limit"},
		},
		{
			name: "any number of processes", weaken: onHost(func(h *hostConfig) { h.PidsLimit = nil }),
			want: []string{"processes-limit"},
		},
		{
			name: "any memory", weaken: onHost(func(h *hostConfig) { h.Memory, h.MemorySwap = 0, 0 }),
			want: []string{"memory-limit"}, may: []string{"swap-limit"},
		},
		{
			name: "swap", weaken: onHost(func(h *hostConfig) { h.MemorySwap = 2 * h.Memory }),
			want: []string{"swap-limit"},
		},
		{
			name: "any processors", weaken: onHost(func(h *hostConfig) { h.NanoCPUs = 0 }),
			want: []string{"processors-limit"},
		},
	}
}

// TestVerifyWeaker verifies containers that are weaker than they promise, each in one respect, and
// compares the broken findings.
func TestVerifyWeaker(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the daemon's machine has to be this one")
	}
	e := connect(t)
	h := host(t)
	seen := make(map[string]bool)
	var mu sync.Mutex
	t.Run("containers", func(t *testing.T) {
		for _, w := range slices.Concat(rights(), directories(t, h), namespaces(t), bounds()) {
			t.Run(w.name, func(t *testing.T) {
				t.Parallel()
				box, err := e.OpenWeaker(t.Context(), config(t, docker.Config{}), w.weaken, w.vars...)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := box.Close(); err != nil {
						t.Error(err)
					}
				})
				got := broken(t, box, h)
				mu.Lock()
				for _, name := range got {
					seen[name] = true
				}
				mu.Unlock()
				got = slices.DeleteFunc(got, func(name string) bool {
					return slices.Contains(w.may, name) && !slices.Contains(w.want, name)
				})
				slices.Sort(got)
				slices.Sort(w.want)
				if diff := cmp.Diff(w.want, got); diff != "" {
					t.Errorf("broken (-want +got):\n%s", diff)
				}
			})
		}
	})
	t.Run("each finding", func(t *testing.T) { everyFindingBreaks(t, e, seen) })
}

// everyFindingBreaks checks that each finding is broken in some container.
func everyFindingBreaks(t *testing.T, e *docker.Engine, seen map[string]bool) {
	t.Helper()
	host := verify.Host{Files: []string{"/none"}, Listening: []string{"127.0.0.1:1"}}
	r, err := open(t, e, docker.Config{}).Verify(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Findings {
		if !seen[f.Name] {
			t.Errorf("no container here breaks %s", f.Name)
		}
	}
}
