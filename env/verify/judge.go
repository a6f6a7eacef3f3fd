package verify

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/probe"
)

// untold is what is said of what the probe does not tell.
const untold = "not told"

// kernel keeps what nobody else is named for.
const kernel = "the kernel"

// elsewhere is what is said of what nothing is known of.
const elsewhere = "not known: the environment is on another machine"

// judgement collects findings.
type judgement struct {
	expect   Expect
	document probe.Document
	// elsewhere says that the environment is on another machine.
	elsewhere bool
	findings  []Finding
}

// judge compares what was found with what was promised. Boot is what the kernel of this machine calls itself.
func (x Expect) judge(d probe.Document, boot string) Report {
	j := &judgement{expect: x, document: d, elsewhere: d.Boot != "" && d.Boot != boot}
	if x.Unprivileged {
		j.rights()
		j.calls()
		j.kernel()
	}
	if x.NoNewRights && !x.Unprivileged {
		j.rights()
		j.calls()
		j.helperProcess()
	}
	if x.User != nil {
		j.user(*x.User)
	}
	j.folders()
	if x.NoCredentials {
		const by = "the configuration: nothing of the host is mounted"
		hidden := func(outcome string) bool { return missing(outcome) || outcome == "EACCES" }
		j.tries("sockets", by, "none of a daemon that commands the machine", each(sockets(), probe.TrySocket), hidden)
		j.tries("credentials", by, "no token of a service", each(tokens(), probe.TryFind), hidden)
	}
	if x.Host.Files != nil {
		j.ofHost("host-files", "the kernel: a mount namespace", "none", each(x.Host.Files, probe.TryFind), missing)
	}
	if x.Host.Sockets != nil {
		j.ofHost("host-sockets", cmp.Or(x.SocketsBy, kernel), "none is reached", each(x.Host.Sockets, probe.TryDial), refusedOrMissing)
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

// ofHost adds a finding about what was looked for of this machine. On another machine it would not be found anyway.
func (j *judgement) ofHost(name, by, wanted string, keys []string, good func(outcome string) bool) {
	told := func(key string) bool { return j.try(key) != "" && good(j.try(key)) }
	if j.elsewhere && !slices.ContainsFunc(keys, func(key string) bool { return !told(key) }) {
		j.add(name, by, "only told", elsewhere, true)
		return
	}
	j.tries(name, by, wanted, keys, good)
}

// each returns the keys of tries.
func each(names []string, key func(string) string) (keys []string) {
	for _, n := range names {
		keys = append(keys, key(n))
	}
	return keys
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
	by := cmp.Or(x.By, kernel)
	if x.Unwritable != nil {
		j.tries("outside-files", by, fmt.Sprintf("none can be made in %d folders outside", len(x.Unwritable)), each(x.Unwritable, probe.TryWrite), refusedOrMissing)
	}
	if len(x.Kept) > 0 {
		j.tries("kept-files", by, fmt.Sprintf("%d files and folders cannot be changed", len(x.Kept)), each(x.Kept, probe.TryChange), refusedOrMissing)
	}
	if x.Unreadable != nil {
		j.tries("secrets", by, fmt.Sprintf("nothing is read of %d places", len(x.Unreadable)), each(x.Unreadable, probe.TryRead), refusedOrMissing)
	}
	if x.Writable != nil {
		j.tries("writable-folders", "the configuration", "files can be made in "+list(x.Writable), each(x.Writable, probe.TryWrite), succeeded)
	}
	if x.Executable != nil {
		j.tries("executable-folders", "the configuration", "programs can be started in "+list(x.Executable), each(x.Executable, probe.TryExecute), succeeded)
	}
	if x.Mounts != nil {
		j.mounts()
	}
}

// mounts judges what is mounted.
func (j *judgement) mounts() {
	var others []string
	for _, m := range j.document.Mounts {
		known := slices.ContainsFunc(j.expect.Mounts, func(want Mount) bool { return j.pointOf(want) == m.Point })
		switch {
		case slices.ContainsFunc(j.expect.Mounts, func(want Mount) bool { return j.pointOf(want) == m.Point && want.is(m) }), !known && ofRuntime(m):
		case known:
			others = append(others, fmt.Sprintf("%s is another: %s, %s, of %s", m.Point, m.Type, m.Options, m.Root))
		default:
			others = append(others, m.Point+" is unknown")
		}
	}
	found := fmt.Sprintf("%d, all known", len(j.document.Mounts))
	if len(others) > 0 {
		found = list(others)
	} else if len(j.document.Mounts) == 0 {
		found = ""
	}
	j.add("mounts", "the configuration", "only those that were asked for", found, len(others) == 0)
}

// pointOf is where a mount is in the end.
func (j *judgement) pointOf(m Mount) string {
	point := path.Clean(m.Point)
	if to, ok := j.document.Links[point]; ok {
		return to
	}
	return point
}

// is reports whether a mount that was found is the one that is wanted, but for its name.
func (m Mount) is(found probe.Mount) bool {
	options := strings.Split(found.Options, ",")
	if m.Memory && (found.Type != "tmpfs" || !slices.Contains(options, "nosuid") || !slices.Contains(options, "nodev")) {
		return false
	}
	return m.Root == nil || m.Root.MatchString(found.Root)
}

// ofRuntime reports whether a mount is one that the runtime of a container makes: of what the kernel shows, and what
// covers a part of it. A runtime without rights of its own shows the machine's /dev/null and the like one by one.
func ofRuntime(m probe.Mount) bool {
	kinds := map[string][]string{
		"/dev": {"tmpfs"}, "/dev/shm": {"tmpfs"}, "/dev/pts": {"devpts"}, "/dev/mqueue": {"mqueue"}, "/dev/console": {"devpts"},
	}[m.Point]
	switch {
	case plainDevices()[m.Point] != nil:
		kinds = append(kinds, "devtmpfs", "tmpfs")
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
	j.helperProcess()
}

// helperProcess judges whether commands can take hold of the helper.
func (j *judgement) helperProcess() {
	j.tries("helper-trace", "the kernel: the helper is not dumpable", "refused", []string{probe.TryPtrace}, refused)
	var keys []string
	for _, name := range probe.Helpers() {
		keys = append(keys, probe.TryHelper(name))
	}
	j.tries("helper-memory", "the kernel: the helper is not dumpable", "cannot be read", keys, refused)
}
