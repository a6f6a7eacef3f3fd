package verify

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

var zeros = lazyregexp.New(`^0+$`)

// rights judges the privileges of a process.
func (j *judgement) rights() {
	status := j.document.Status
	sets := []string{"CapInh", "CapPrm", "CapEff", "CapAmb"}
	if j.expect.Unprivileged {
		sets = append(sets, "CapBnd") // which grants nothing under no_new_privs
	}
	var caps []string
	for _, set := range sets {
		if value := cmp.Or(status[set], unreported); !zeros().MatchString(value) {
			caps = append(caps, set+" "+value)
		}
	}
	j.add("capabilities", byKernel, "none in any set", list(caps), len(caps) == 0)
	j.add("no-new-privileges", "the kernel: no_new_privs", "1", status["NoNewPrivs"],
		status["NoNewPrivs"] == "1")
	j.filter()
}

// filter judges the system call filter.
func (j *judgement) filter() {
	found, count := j.document.Status["Seccomp"], j.document.Status["Seccomp_filters"]
	ok := found == "2"
	if count != "" && found != "" { // kernels before 5.9 do not count
		n, err := strconv.Atoi(count)
		ok = ok && err == nil && n >= j.expect.Filters
		found += ", filters " + count
	}
	wanted := "2"
	if j.expect.Filters > 1 {
		wanted = fmt.Sprintf("2, filters %d", j.expect.Filters)
	}
	calls := filteredCalls()
	if !j.expect.Unprivileged { // debuggers call it
		calls = slices.DeleteFunc(calls, func(call string) bool { return call == "personality" })
	}
	_, bad := j.outcomes(each("call", calls), refused)
	if len(bad) > 0 && found != "" {
		found += ", not refused: " + list(bad)
	}
	j.add("system-call-filter", "the kernel: seccomp",
		wanted+", and calls refused that only a filter refuses", found, ok && len(bad) == 0)
}

// user judges the user and the groups of a process.
func (j *judgement) user(want User) {
	status := j.document.Status
	// real, effective, saved, file system
	all := func(n int) string { return strings.TrimSpace(strings.Repeat(strconv.Itoa(n)+" ", 4)) }
	groups := strings.Fields(status["Groups"])
	ok := status["Uid"] == all(want.UID) && status["Gid"] == all(want.GID)
	found := ""
	switch {
	case ok:
		found = fmt.Sprintf("user %d, group %d, groups %s", want.UID, want.GID, list(groups))
	case status["Uid"] != "" && status["Gid"] != "":
		found = fmt.Sprintf("user %s, group %s, groups %s", status["Uid"], status["Gid"], list(groups))
	}
	for _, g := range groups {
		ok = ok && g == strconv.Itoa(want.GID)
	}
	j.add("user", byKernel, fmt.Sprintf("user %d, group %d, no others", want.UID, want.GID), found, ok)
}

// files judges the access to files: reading, writing and executing.
func (j *judgement) files() {
	x := j.expect
	if x.ReadOnly != nil {
		all, bad := j.outcomes(each("write", x.ReadOnly), refusedOrMissing)
		for _, dir := range x.ReadOnly {
			if m, ok := j.mountOf(dir); !ok || !m.ReadOnly {
				bad = append(bad, dir+" is mounted for writing")
			}
		}
		if len(bad) > 0 {
			all = bad
		}
		j.add("root-file-system", "the kernel: a read-only mount", "read-only", list(all), len(bad) == 0)
	}
	by := cmp.Or(x.By, byKernel)
	if x.Unwritable != nil {
		wanted := fmt.Sprintf("none can be made in %d directories outside", len(x.Unwritable))
		j.tries("outside-files", by, wanted, each("write", x.Unwritable), refusedOrMissing)
	}
	if len(x.Kept) > 0 {
		wanted := fmt.Sprintf("%d files and directories cannot be changed", len(x.Kept))
		j.tries("kept-files", by, wanted, each("change", x.Kept), refusedOrMissing)
	}
	if len(x.GitDirs) > 0 {
		wanted := fmt.Sprintf("%d repositories cannot be changed", len(x.GitDirs))
		j.tries("git-repository", by, wanted, each("change", x.GitDirs), refusedOrMissing)
	}
	if x.Unreadable != nil {
		wanted := fmt.Sprintf("none of %d paths can be read", len(x.Unreadable))
		j.tries("secrets", by, wanted, each("read", x.Unreadable), refusedOrMissing)
	}
	if x.HiddenHome != nil {
		wanted := fmt.Sprintf("none of %d paths can be read", len(x.HiddenHome))
		j.tries("home", by, wanted, each("read", x.HiddenHome), refusedOrMissing)
	}
	const byConfig = "the configuration"
	if x.Writable != nil {
		j.tries("writable-directories", byConfig, "files can be made in "+list(x.Writable),
			each("write", x.Writable), succeeded)
	}
	if x.Executable != nil {
		j.tries("executable-directories", byConfig, "programs can be executed in "+list(x.Executable),
			each("execute", x.Executable), succeeded)
	}
}

// mounts judges whether unexpected mounts exist.
func (j *judgement) mounts() {
	var others []string
	for _, m := range j.document.Mounts {
		same := func(want Mount) bool { return j.pointOf(want) == m.Point }
		known := slices.ContainsFunc(j.expect.Mounts, same)
		switch {
		case !known && ofRuntime(m):
		case !known:
			others = append(others, m.Point+" is unknown")
		case !slices.ContainsFunc(j.expect.Mounts, func(want Mount) bool {
			return same(want) && want.matches(m)
		}):
			others = append(others, fmt.Sprintf("%s is another: %s, %s, of %s", m.Point, m.Type, m.Options,
				m.Root))
		}
	}
	found := ""
	switch {
	case len(others) > 0:
		found = list(others)
	case len(j.document.Mounts) > 0:
		found = fmt.Sprintf("%d, all known", len(j.document.Mounts))
	}
	j.add("mounts", "the configuration", "only those requested", found, len(others) == 0)
}

// pointOf returns the mount point with its symlinks resolved.
func (j *judgement) pointOf(m Mount) string {
	point := path.Clean(m.Point)
	return cmp.Or(j.document.Links[point], point)
}

// matches reports whether a mount is as expected, its point aside.
func (m Mount) matches(found mountPoint) bool {
	options := strings.Split(found.Options, ",")
	if m.Memory && (found.Type != "tmpfs" || !slices.Contains(options, "nosuid") ||
		!slices.Contains(options, "nodev")) {
		return false
	}
	return m.Root == nil || m.Root.MatchString(found.Root)
}

// ofRuntime reports whether a container runtime makes a mount: file systems of the kernel and
// covers over parts of them. A runtime without root mounts /dev/null and similar devices of the
// machine one by one.
func ofRuntime(m mountPoint) bool {
	var types []string
	switch {
	case m.Point == "/dev", m.Point == "/dev/shm":
		types = []string{"tmpfs"}
	case m.Point == "/dev/pts", m.Point == "/dev/console":
		types = []string{"devpts", "devtmpfs", "tmpfs"}
	case m.Point == "/dev/mqueue":
		types = []string{"mqueue"}
	case slices.Contains([]string{"null", "zero", "full", "random", "urandom", "tty", "ptmx"},
		strings.TrimPrefix(m.Point, "/dev/")):
		types = []string{"devtmpfs", "tmpfs"}
	case m.Point == "/proc" || strings.HasPrefix(m.Point, "/proc/"):
		types = []string{"proc", "tmpfs", "devtmpfs"}
	case m.Point == "/sys" || strings.HasPrefix(m.Point, "/sys/"):
		types = []string{"sysfs", "tmpfs", "cgroup", "cgroup2"}
	}
	return slices.Contains(types, m.Type)
}

// mountOf returns the mount of a directory: of those with the longest point the last, which covers
// the others.
func (j *judgement) mountOf(dir string) (found mountPoint, ok bool) {
	for _, m := range j.document.Mounts {
		within := m.Point == dir || strings.HasPrefix(dir, strings.TrimSuffix(m.Point, "/")+"/")
		if within && path.IsAbs(m.Point) && (!ok || len(m.Point) >= len(found.Point)) {
			found, ok = m, true
		}
	}
	return found, ok
}

// network judges the reachable hosts and services.
func (j *judgement) network() {
	x := j.expect
	listening := each("connect tcp", x.Host.Listening)
	const byFilter, by = "the system call filter", "the kernel: a network namespace"
	if x.NoUnixSockets {
		j.tries("unix-sockets", byFilter, "refused", each("family", []string{"unix", "datagram-pair"}),
			refused)
	}
	if x.NoSockets {
		j.tries("network-sockets", byFilter, "refused", each("family", socketFamilies()), refused)
		if x.Host.Listening != nil {
			j.tries("host-loopback", byFilter, "refused", listening, refused)
		}
		return
	}
	if x.NoNetwork {
		found := ""
		if j.document.Routes != nil {
			found = list(j.document.Routes)
		}
		j.add("network-routes", by, "none", found, len(j.document.Routes) == 0)
		j.tries("metadata-service", by, "fails at once", each("connect", []string{
			"tcp 169.254.169.254:80", "tcp [fd00:ec2::254]:80",
		}), unreached)
		unanswered := func(outcome string) bool { return outcome == outcomeNoAnswer }
		j.tries("name-service", by, "fails at once", []string{"resolve example.com."}, unanswered)
	}
	if x.Host.Listening != nil {
		nobody := func(outcome string) bool { return outcome == "ECONNREFUSED" || unreached(outcome) }
		j.ofHost("host-loopback", by, "nobody listens", listening, nobody)
	}
}

// limits judges the resource limits.
func (j *judgement) limits() {
	x := j.expect
	limit := func(name, key string, want float64) {
		found := j.document.Limits[key]
		n, err := strconv.ParseFloat(found, 64)
		ok := err == nil && n >= 0 && n <= want
		j.add(name, "the kernel: a control group", strconv.FormatFloat(want, 'f', -1, 64), found, ok)
	}
	if x.PIDs > 0 {
		limit("processes-limit", "pids", float64(x.PIDs))
	}
	if x.Memory > 0 {
		limit("memory-limit", "memory", float64(x.Memory))
		limit("swap-limit", "swap", 0)
	}
	if x.CPUs > 0 {
		limit("processors-limit", "cpus", x.CPUs)
	}
}

// vars judges the names of the environment variables.
func (j *judgement) vars() {
	allowed := slices.Concat(j.expect.Vars, commandVars())
	others := slices.DeleteFunc(slices.Clone(j.document.Vars), func(name string) bool {
		return slices.ContainsFunc(allowed, func(pattern string) bool {
			prefix, star := strings.CutSuffix(pattern, "*")
			return pattern == name || star && strings.HasPrefix(name, prefix)
		})
	})
	found := ""
	switch {
	case len(others) > 0:
		found = "unknown: " + list(others)
	case j.document.Vars != nil:
		found = fmt.Sprintf("%d, all known", len(j.document.Vars))
	}
	j.add("variables", "the helper", "only those of the image and those requested", found,
		len(others) == 0)
}
