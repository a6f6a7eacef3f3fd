package verify

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	// unreported is the text for data that the probe does not report.
	unreported = "not reported"
	// byKernel is the default enforcer.
	byKernel = "the kernel"
	// elsewhere is the finding for a property of another machine.
	elsewhere = "not known: the environment is on another machine"
)

// judgement collects findings.
type judgement struct {
	expect   Expect
	document document
	// elsewhere: the environment is on another machine.
	elsewhere bool
	findings  []Finding
	// tried are the attempts that the findings need.
	tried map[string]bool
}

// judge compares a report with x. Boot is the boot ID of this machine.
func (x Expect) judge(d document, boot string) Report {
	return Report{Findings: x.judgement(d, d.Boot != "" && d.Boot != boot).findings}
}

// request returns the attempts of the probe: all that a judgement reads.
func (x Expect) request() request {
	q := request{Tries: slices.Sorted(maps.Keys(x.judgement(document{}, false).tried))}
	for _, m := range x.Mounts {
		q.Links = append(q.Links, path.Clean(m.Point))
	}
	return q
}

func (x Expect) judgement(d document, elsewhere bool) *judgement {
	j := &judgement{expect: x, document: d, elsewhere: elsewhere, tried: make(map[string]bool)}
	if x.Unprivileged || x.NoNewRights {
		j.rights()
	}
	if x.User != nil {
		j.user(*x.User)
	}
	j.files()
	if x.Mounts != nil {
		j.mounts()
	}
	if x.NoCredentials {
		const by = "the configuration: nothing of the host is mounted"
		hidden := func(outcome string) bool { return missing(outcome) || outcome == "EACCES" }
		j.tries("sockets", by, "none of a daemon that commands the machine", each("socket", sockets()),
			hidden)
		j.tries("credentials", by, "no token of a service", each("find", tokens()), hidden)
	}
	if x.OwnNamespaces {
		j.namespaces()
	}
	j.host()
	j.network()
	j.limits()
	if x.Vars != nil {
		j.vars()
	}
	if x.Helper != "" {
		dir := path.Dir(x.Helper)
		m, ok := j.mountOf(dir)
		found := ""
		if ok {
			found = "mounted at " + m.Point
			if m.ReadOnly {
				found += ", read-only"
			}
		}
		j.add("helper-volume", "the kernel: a read-only mount", "a read-only mount at "+dir, found,
			m.Point == dir && m.ReadOnly)
	}
	if x.Helper != "" || x.NoNewRights {
		const by = "the kernel: the helper is not dumpable"
		j.tries("helper-memory", by, "cannot be read", each("helper", []string{"mem", "environ"}),
			refused)
	}
	return j
}

// add adds a finding. An empty found means that the probe does not report it.
func (j *judgement) add(name, by, wanted, found string, ok bool) {
	if found == "" {
		found, ok = unreported, false
	}
	j.findings = append(j.findings, Finding{
		Name: name, Found: plain(found), Wanted: plain(wanted),
		By: by, OK: ok,
	})
}

// outcomes returns the distinct outcomes of attempts, and those attempts whose outcome is not good.
func (j *judgement) outcomes(keys []string, good func(outcome string) bool) (all, bad []string) {
	for _, key := range keys {
		j.tried[key] = true
		outcome := cmp.Or(j.document.Tries[key], unreported)
		all = append(all, outcome)
		if outcome == unreported || !good(outcome) {
			bad = append(bad, key+": "+outcome)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), bad
}

// tries adds a finding about attempts, whose outcomes all have to be good.
func (j *judgement) tries(name, by, wanted string, keys []string, good func(outcome string) bool) {
	all, bad := j.outcomes(keys, good)
	if len(bad) > 0 {
		all = bad
	}
	j.add(name, by, wanted, list(all), len(bad) == 0)
}

// each returns the keys of attempts of one kind.
func each(verb string, objects []string) (keys []string) {
	for _, object := range objects {
		keys = append(keys, verb+" "+object)
	}
	return keys
}

// list joins texts; an empty list is "none".
func list(texts []string) string { return cmp.Or(strings.Join(texts, ", "), outcomeNone) }

// refused reports whether the kernel refused something.
func refused(outcome string) bool {
	return slices.Contains([]string{"EPERM", "EACCES", "EROFS", "ENOSYS"}, outcome)
}

// missing reports whether something is absent, or covered.
func missing(outcome string) bool {
	return slices.Contains([]string{"ENOENT", "ENOTDIR", "ENXIO", outcomeNone}, outcome)
}

func refusedOrMissing(outcome string) bool { return refused(outcome) || missing(outcome) }

func succeeded(outcome string) bool { return outcome == outcomeOK }

// unreached reports whether a connection failed at once, without a route.
func unreached(outcome string) bool {
	none := []string{"ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT", "ENETDOWN"}
	return refused(outcome) || slices.Contains(none, outcome)
}

// filteredCalls are system calls that a sandbox's filter refuses, and that the kernel itself does
// not refuse.
func filteredCalls() []string {
	return []string{
		"add_key", "clone", "clone3", "keyctl", "open_by_handle_at", "open_tree", "personality", "setns",
		"unshare", "userfaultfd",
	}
}

// socketFamilies are the kinds of sockets that a process can make.
func socketFamilies() []string {
	return []string{"tcp4", "udp4", "tcp6", "udp6", "raw", "unix", "netlink", "packet"}
}

// namespaceKinds are the kinds of namespaces that containers have.
func namespaceKinds() []string { return []string{"pid", "ipc", "uts", "cgroup", "mnt", "net"} }

// initialNamespaces is the number below which the kernel numbers its initial namespaces.
const initialNamespaces = 0xF0000000

// sockets are those of daemons that control the machine.
func sockets() []string {
	return []string{
		"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock",
		"/run/crio/crio.sock", "/run/podman/podman.sock", "/run/buildkit/buildkitd.sock",
		"/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/notify",
	}
}

// tokens are files with the credentials of a service account.
func tokens() []string {
	return []string{
		"/run/secrets/kubernetes.io/serviceaccount/token",
		"/var/run/secrets/kubernetes.io/serviceaccount/token",
		"/var/run/secrets/eks.amazonaws.com/serviceaccount/token",
		"/var/run/secrets/azure/tokens/azure-identity-token", "/var/run/secrets/tokens",
	}
}

// commandVars are the environment variables of every command: the helper finds its processes by the
// first.
func commandVars() []string { return []string{"SANDBOXAGENT_EXEC_*", "PWD"} }

// namespaces judges whether the namespaces are the environment's own.
func (j *judgement) namespaces() {
	found := "its own"
	var shared []string
	for _, kind := range namespaceKinds() {
		number, ok := j.document.Namespaces[kind]
		switch {
		case kind == "cgroup" && j.expect.HostCgroups:
		case !ok:
			found = ""
		case number < initialNamespaces:
			shared = append(shared, kind)
		}
	}
	if len(shared) > 0 {
		found = "the machine's: " + list(shared)
	}
	j.add("namespaces", byKernel, "its own", found, len(shared) == 0)
}

// host judges whether something of the host is found.
func (j *judgement) host() {
	h := j.expect.Host
	if h.Files != nil {
		j.ofHost("host-files", "the kernel: a mount namespace", "none", each("find", h.Files), missing)
	}
	if h.Sockets != nil {
		by := cmp.Or(j.expect.SocketsBy, byKernel)
		j.ofHost("host-sockets", by, "none is reached", each("dial", h.Sockets), refusedOrMissing)
	}
	if h.Process != 0 && h.Name != "" {
		other := func(outcome string) bool { return outcome != h.Name }
		process := each("process", []string{strconv.Itoa(h.Process)})
		j.ofHost("host-processes", "the kernel: a pid namespace", "not seen", process, other)
	}
}

// ofHost adds a finding about attempts to find something of this machine. Elsewhere failed attempts
// prove nothing.
func (j *judgement) ofHost(name, by, wanted string, keys []string, good func(outcome string) bool) {
	if _, bad := j.outcomes(keys, good); j.elsewhere && len(bad) == 0 {
		j.add(name, by, "informative", elsewhere, true)
		return
	}
	j.tries(name, by, wanted, keys, good)
}
