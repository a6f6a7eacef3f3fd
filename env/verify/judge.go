package verify

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/probe"
)

// untold is what is said of what the probe does not tell.
const untold = "not told"

// judgement collects findings.
type judgement struct {
	expect   Expect
	document probe.Document
	findings []Finding
}

// judge compares what was found with what was promised.
func (x Expect) judge(d probe.Document) Report {
	j := &judgement{expect: x, document: d}
	if x.Unprivileged {
		j.rights()
		j.calls()
		j.kernel()
	}
	if x.User != nil {
		j.user(*x.User)
	}
	j.folders()
	if x.NoCredentials {
		j.absent("sockets", "none of a daemon that commands the machine", "the configuration: nothing of the host is mounted", sockets())
		j.absent("credentials", "no token of a service", "the configuration: nothing of the host is mounted", tokens())
	}
	if x.Host.Files != nil {
		j.absent("host-files", "none", "the kernel: a mount namespace", x.Host.Files)
	}
	j.places()
	j.network()
	j.limits()
	if x.Vars != nil {
		j.vars()
	}
	if x.Helper != "" {
		j.helper()
	}
	return Report{Findings: j.findings}
}

// add adds a finding.
func (j *judgement) add(name, by, wanted, found string, ok bool) {
	if found == "" {
		found, ok = untold, false
	}
	j.findings = append(j.findings, Finding{Name: name, Found: plain(found), Wanted: plain(wanted), By: by, OK: ok})
}

// try is the outcome of a try; empty if the probe does not tell.
func (j *judgement) try(key string) string { return j.document.Tries[key] }

// tries adds a finding about several tries, of which each has to have an outcome that is good. Those that are not are
// what was found; if there are none, the outcomes are.
func (j *judgement) tries(name, by, wanted string, keys []string, good func(outcome string) bool) {
	var bad, all []string
	for _, key := range keys {
		outcome := j.try(key)
		if outcome == "" {
			outcome = untold
		}
		all = append(all, outcome)
		if outcome == untold || !good(outcome) {
			bad = append(bad, key+": "+outcome)
		}
	}
	if len(bad) > 0 {
		j.add(name, by, wanted, list(bad), false)
		return
	}
	slices.Sort(all)
	j.add(name, by, wanted, list(slices.Compact(all)), true)
}

// list joins texts; an empty list is "none".
func list(texts []string) string {
	if len(texts) == 0 {
		return probe.None
	}
	return strings.Join(texts, ", ")
}

// refused reports whether the kernel refused something.
func refused(outcome string) bool {
	return slices.Contains([]string{"EPERM", "EACCES", "EROFS", "ENOSYS"}, outcome)
}

// missing reports whether something is not there, or covered.
func missing(outcome string) bool {
	return slices.Contains([]string{"ENOENT", "ENOTDIR", "ENXIO", probe.None}, outcome)
}

func succeeded(outcome string) bool { return outcome == probe.OK }

func refusedOrMissing(outcome string) bool { return refused(outcome) || missing(outcome) }

// sockets are those of daemons that do what they are told on the whole machine.
func sockets() []string {
	return []string{
		"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/var/run/containerd/containerd.sock",
		"/run/crio/crio.sock", "/run/podman/podman.sock", "/run/buildkit/buildkitd.sock", "/run/dbus/system_bus_socket",
		"/var/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/notify",
	}
}

// tokens are files with which services are told who asks.
func tokens() []string {
	return []string{
		"/var/run/secrets/kubernetes.io/serviceaccount/token", "/run/secrets/kubernetes.io/serviceaccount/token",
		"/var/run/secrets/eks.amazonaws.com/serviceaccount/token", "/var/run/secrets/azure/tokens/azure-identity-token",
		"/var/run/secrets/tokens",
	}
}

func (j *judgement) absent(name, wanted, by string, names []string) {
	var keys []string
	for _, n := range names {
		keys = append(keys, probe.TryFind(n))
	}
	j.tries(name, by, wanted, keys, func(outcome string) bool { return missing(outcome) || outcome == "EACCES" })
}

// folders judges where can be written, and what is mounted.
func (j *judgement) folders() {
	x := j.expect
	if x.ReadOnly != nil {
		var keys, writable []string
		for _, dir := range x.ReadOnly {
			keys = append(keys, probe.TryWrite(dir))
			if m, ok := j.mountOf(dir); !ok || !m.ReadOnly {
				writable = append(writable, dir+" is mounted for writing")
			}
		}
		const name, by, wanted = "root-file-system", "the kernel: a read-only mount", "read-only"
		if len(writable) > 0 {
			j.add(name, by, wanted, list(writable), false)
		} else {
			j.tries(name, by, wanted, keys, refusedOrMissing)
		}
	}
	each := func(dirs []string, key func(string) string) (keys []string) {
		for _, dir := range dirs {
			keys = append(keys, key(dir))
		}
		return keys
	}
	if x.Writable != nil {
		j.tries("writable-folders", "the configuration", "files can be made in "+list(x.Writable), each(x.Writable, probe.TryWrite), succeeded)
	}
	if x.Executable != nil {
		j.tries("executable-folders", "the configuration", "programs can be started in "+list(x.Executable), each(x.Executable, probe.TryExecute), succeeded)
	}
	if x.Mounts != nil {
		var others []string
		for _, m := range j.document.Mounts {
			if !slices.Contains(x.Mounts, m.Point) && !ofRuntime(m) {
				others = append(others, m.Point)
			}
		}
		found := fmt.Sprintf("%d, all known", len(j.document.Mounts))
		if len(others) > 0 {
			found = "unknown: " + list(others)
		} else if len(j.document.Mounts) == 0 {
			found = ""
		}
		j.add("mounts", "the configuration", "only those that were asked for", found, len(others) == 0)
	}
}

// ofRuntime reports whether a mount is one that the runtime of a container makes: of what the kernel shows, and what
// covers a part of it. A runtime without rights of its own shows the machine's /dev/null and the like one by one.
func ofRuntime(m probe.Mount) bool {
	kinds := map[string][]string{
		"/dev": {"tmpfs"}, "/dev/shm": {"tmpfs"}, "/dev/pts": {"devpts"}, "/dev/mqueue": {"mqueue"}, "/dev/console": {"devpts"},
	}[m.Point]
	switch {
	case slices.Contains(plainDevices, m.Point):
		kinds = append(kinds, "devtmpfs")
	case m.Point == "/proc" || strings.HasPrefix(m.Point, "/proc/"):
		kinds = []string{"proc", "tmpfs", "devtmpfs"}
	case m.Point == "/sys" || strings.HasPrefix(m.Point, "/sys/"):
		kinds = []string{"sysfs", "tmpfs", "cgroup", "cgroup2"}
	}
	return slices.Contains(kinds, m.Type)
}

// mountOf returns the mount that a folder is on: of those with the longest name the last, which covers the others.
func (j *judgement) mountOf(dir string) (found probe.Mount, ok bool) {
	for _, m := range j.document.Mounts {
		within := m.Point == dir || strings.HasPrefix(dir, strings.TrimSuffix(m.Point, "/")+"/")
		if within && path.IsAbs(m.Point) && (!ok || len(m.Point) >= len(found.Point)) {
			found, ok = m, true
		}
	}
	return found, ok
}

// helper judges how well the helper is protected.
func (j *judgement) helper() {
	dir := path.Dir(j.expect.Helper)
	m, ok := j.mountOf(dir)
	found := ""
	if ok {
		found = "mounted at " + m.Point
		if m.ReadOnly {
			found += ", read-only"
		}
	}
	j.add("helper-volume", "the kernel: a read-only mount", "a read-only mount at "+dir, found, m.Point == dir && m.ReadOnly)
	j.tries("helper-file", "the kernel: the mode of the file", "cannot be read", []string{probe.TryHelperFile}, refused)
	j.tries("helper-trace", "the kernel: the helper is not dumpable", "refused", []string{probe.TryPtrace}, refused)
	var keys []string
	for _, name := range probe.Helpers() {
		keys = append(keys, probe.TryHelper(name))
	}
	j.tries("helper-memory", "the kernel: the helper is not dumpable", "cannot be read", keys, refused)
}
