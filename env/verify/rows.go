package verify

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sandboxagent/sandboxagent/env/internal/probe"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// commandVars are the variables that come with each command: with the marker the helper finds what belongs to it.
func commandVars() []string { return []string{"SANDBOXAGENT_EXEC_*", "PWD"} }

// initialNamespaces is the number below which the kernel numbers its own first namespaces.
const initialNamespaces = 0xF0000000

var zeros = lazyregexp.New(`^0+$`)

// rights judges what the kernel says of the rights of a process.
func (j *judgement) rights() {
	status := j.document.Status
	var caps []string
	none := true
	sets := []string{"CapInh", "CapPrm", "CapEff", "CapAmb"}
	if j.expect.Unprivileged {
		sets = append(sets, "CapBnd") // of which nothing is gained without a way to gain rights
	}
	for _, set := range sets {
		value, ok := status[set]
		if !ok {
			value = untold
		}
		if !zeros().MatchString(value) {
			none = false
			caps = append(caps, set+" "+value)
		}
	}
	j.add("capabilities", "the kernel", "none in any set", list(caps), none)
	j.add("no-new-privileges", "the kernel: no_new_privs", "1", status["NoNewPrivs"], status["NoNewPrivs"] == "1")

	filters := status["Seccomp_filters"]
	found := status["Seccomp"]
	enough := true
	if filters != "" && found != "" { // kernels before 5.9 do not count
		n, err := strconv.Atoi(filters)
		enough = err == nil && n >= j.expect.Filters
		found += ", filters " + filters
	}
	wanted := "2"
	if j.expect.Filters > 1 {
		wanted = fmt.Sprintf("2, filters %d", j.expect.Filters)
	}
	enough = enough && status["Seccomp"] == "2"
	var let []string
	for _, call := range probe.Filtered() {
		if call == "personality" && !j.expect.Unprivileged {
			continue // debuggers call it
		}
		if outcome := cmp.Or(j.try(probe.TryFiltered(call)), untold); !refused(outcome) {
			let = append(let, call+": "+outcome)
		}
	}
	if len(let) > 0 && found != "" {
		found += ", not refused: " + list(let)
	}
	j.add("system-call-filter", "the kernel: seccomp", wanted+", and calls refused that only a filter refuses", found, enough && len(let) == 0)

	setuid := j.try(probe.TrySetuid)
	found = map[string]string{
		probe.OK: j.document.Setuid + " ran as root", "EPERM": j.document.Setuid + " did not raise its user",
		probe.None: "no such program was found, or the user is root",
	}[setuid]
	// A program that gives its rights up by itself looks as if it had none.
	j.add("setuid-programs", "the kernel: no_new_privs", "do not raise the user", found, setuid != probe.OK && status["NoNewPrivs"] == "1")
}

// calls judges what system calls do.
func (j *judgement) calls() {
	const by = "the kernel: capabilities and the system call filter"
	call := func(name string, keys ...string) {
		j.tries(name, by, "refused", keys, refused)
	}
	call("mount", probe.TryMount)
	call("device-files", probe.TryMknod)
	j.tries("user-namespaces", by, "refused", []string{probe.TryUnshare, probe.TryClone, probe.TryClone3}, func(outcome string) bool {
		return refused(outcome) || outcome == "ENOSPC" || outcome == "EUSERS" // the machine allows none
	})
	call("kernel-keyrings", probe.TryKeyctl)
	call("bpf", probe.TryBPF)
	call("perf-events", probe.TryPerf)
	call("kernel-log", probe.TrySyslog)
	j.tries("io-uring", "the system call filter, depending on its version", "only told", []string{probe.TryIOUring}, func(string) bool { return true })
}

// plainDevices are device files that everybody may have, and what they are: a console may be a terminal.
var plainDevices = sync.OnceValue(func() map[string]*regexp.Regexp {
	return map[string]*regexp.Regexp{
		"/dev/null": regexp.MustCompile(`^c 1:3$`), "/dev/zero": regexp.MustCompile(`^c 1:5$`), "/dev/full": regexp.MustCompile(`^c 1:7$`),
		"/dev/random": regexp.MustCompile(`^c 1:8$`), "/dev/urandom": regexp.MustCompile(`^c 1:9$`), "/dev/tty": regexp.MustCompile(`^c 5:0$`),
		"/dev/console": regexp.MustCompile(`^c (5:1|136:[0-9]+)$`), "/dev/ptmx": regexp.MustCompile(`^c 5:2$`),
	}
})

// plainRule matches what a control group may allow: to make any device file, which takes a capability, and to use those of
// plainDevices, terminals, and the device of tunnels, of which no file is there.
var plainRule = lazyregexp.New(`^([abc] [0-9*]+:[0-9*]+ m|c (1:[35789]|5:[012]|10:200|136:(\*|[0-9]+)) [rwm]+)$`)

// kernel judges what the kernel shows of the machine.
func (j *judgement) kernel() {
	var others []string
	for name, numbers := range j.document.Devices {
		if plain := plainDevices()[name]; plain == nil || !plain.MatchString(numbers) {
			others = append(others, name+" ("+numbers+")")
		}
	}
	slices.Sort(others)
	for _, rule := range j.document.DeviceRules {
		if !plainRule().MatchString(rule) {
			others = append(others, "allowed: "+rule)
		}
	}
	found := list(others)
	if len(j.document.Devices) == 0 { // no program does without /dev/null
		found = ""
	}
	j.add("devices", "the container runtime", "none but /dev/null and the like", found, len(others) == 0)
	j.settings()
	j.tries("kernel-memory", "the container runtime: covered files", "cannot be read", each(probe.Secret(), probe.TryRead), refusedOrMissing)
}

// settings judges whether somebody could change the machine's. For an ordinary user that they are mounted read-only makes no
// difference yet; it does for the next defect by which somebody becomes root.
func (j *judgement) settings() {
	const name, by, wanted = "kernel-settings", "the kernel: read-only mounts", "mounted read-only, cannot be written"
	var writable []string
	for _, file := range probe.Kernel() {
		m, ok := j.mountOf(file)
		covered := m.Type == "tmpfs" // it is not the kernel's
		if !missing(j.try(probe.TryAccess(file))) && (!ok || !m.ReadOnly) && !covered {
			writable = append(writable, file)
		}
	}
	for _, m := range j.document.Mounts {
		if (m.Type == "cgroup" || m.Type == "cgroup2") && !m.ReadOnly {
			writable = append(writable, m.Point)
		}
	}
	if len(writable) > 0 {
		j.add(name, by, wanted, "mounted for writing: "+list(writable), false)
		return
	}
	j.tries(name, by, wanted, each(probe.Kernel(), probe.TryAccess), refusedOrMissing)
}

// user judges who a process is.
func (j *judgement) user(want User) {
	status := j.document.Status
	four := func(n int) string { return strings.TrimSuffix(strings.Repeat(strconv.Itoa(n)+" ", 4), " ") }
	found := ""
	if status["Uid"] != "" && status["Gid"] != "" {
		found = fmt.Sprintf("user %s, group %s, groups %s", status["Uid"], status["Gid"], list(strings.Fields(status["Groups"])))
		if status["Uid"] == four(want.UID) && status["Gid"] == four(want.GID) {
			found = fmt.Sprintf("user %d, group %d, groups %s", want.UID, want.GID, list(strings.Fields(status["Groups"])))
		}
	}
	ok := status["Uid"] == four(want.UID) && status["Gid"] == four(want.GID)
	for _, g := range strings.Fields(status["Groups"]) {
		ok = ok && g == strconv.Itoa(want.GID)
	}
	j.add("user", "the kernel", fmt.Sprintf("user %d, group %d, no others", want.UID, want.GID), found, ok)
}

// places judges whether the environment is a place of its own.
func (j *judgement) places() {
	d := j.document
	if j.expect.OwnNamespaces {
		var shared []string
		told := true
		for _, kind := range []string{"pid", "ipc", "uts", "cgroup", "mnt", "net"} {
			number, ok := d.Namespaces[kind]
			switch {
			case !ok:
				told = false
			case number < initialNamespaces:
				shared = append(shared, kind)
			}
		}
		found := "its own"
		if len(shared) > 0 {
			found = "the machine's: " + list(shared)
		} else if !told {
			found = ""
		}
		j.add("namespaces", "the kernel", "its own", found, len(shared) == 0)
	}
	if x := j.expect; x.Apart != nil {
		var shared []string
		told := true
		for _, kind := range slices.Sorted(maps.Keys(x.Apart)) {
			number, ok := d.Namespaces[kind]
			told = told && ok
			if number == x.Apart[kind] {
				shared = append(shared, kind)
			}
		}
		found := "others"
		if len(shared) > 0 {
			found = "the same: " + list(shared)
		} else if !told {
			found = ""
		}
		wanted := "others than those outside: " + list(slices.Sorted(maps.Keys(x.Apart)))
		j.add("other-namespaces", "the kernel", wanted, found, len(shared) == 0)
	}
	if x := j.expect; x.Host.Process != 0 && x.Host.Name != "" {
		name, seen := d.Processes[strconv.Itoa(x.Host.Process)]
		found := fmt.Sprintf("not seen, of %d that are", len(d.Processes))
		if seen && name == x.Host.Name {
			found = fmt.Sprintf("%s, number %d, is seen", name, x.Host.Process)
		} else if d.Processes == nil {
			found = ""
		} else if j.elsewhere {
			found = elsewhere
		}
		j.add("host-processes", "the kernel: a pid namespace", "not seen", found, !seen || name != x.Host.Name)
	}
	if j.expect.Init != "" {
		found := d.Processes["1"]
		if found != "" {
			found = fmt.Sprintf("process 1 is %s, %d seen", found, len(d.Processes))
		}
		j.add("processes", "the kernel: a pid namespace", "process 1 is "+j.expect.Init+", no kernel threads", found,
			d.Processes["1"] == j.expect.Init && d.Processes["2"] != "kthreadd")
	}
}

// unreached reports whether a connection failed at once, for want of a way.
func unreached(outcome string) bool {
	return refused(outcome) || slices.Contains([]string{"ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT", "ENETDOWN"}, outcome)
}

// network judges what can be reached.
func (j *judgement) network() {
	const by = "the kernel: a network namespace"
	if j.expect.NoSockets {
		j.noSockets()
		return
	}
	d, closed := j.document, j.expect.NoNetwork
	found := list(d.Interfaces)
	if d.Interfaces == nil {
		found = ""
	}
	routes := list(d.Routes)
	if d.Routes == nil {
		routes = ""
	}
	if !closed {
		if j.expect.Host.Listening != nil || j.expect.Unprivileged {
			j.add("network-interfaces", "nobody", "only told", found, true)
			j.add("network-routes", "nobody", "only told", routes, true)
		}
	} else {
		only := !slices.ContainsFunc(d.Interfaces, func(name string) bool { return name != "lo" })
		j.add("network-interfaces", by, "only lo", found, only)
		j.add("network-routes", by, "none", routes, len(d.Routes) == 0)
		var outside, metadata []string
		for _, t := range probe.Outside() {
			key := probe.TryConnect(t.Network, t.Address)
			if slices.Contains(probe.Metadata(), t) {
				metadata = append(metadata, key)
			} else {
				outside = append(outside, key)
			}
		}
		j.tries("connections", by, "fail at once", outside, unreached)
		j.tries("metadata-service", by, "fails at once", metadata, unreached)
		j.tries("name-service", by, "fails at once", []string{probe.TryResolve}, func(outcome string) bool { return outcome == probe.NoAnswer })
	}
	if j.expect.Host.Listening != nil {
		keys := each(j.expect.Host.Listening, func(a string) string { return probe.TryConnect("tcp", a) })
		j.ofHost("host-loopback", by, "nobody listens", keys, func(outcome string) bool { return outcome == "ECONNREFUSED" || unreached(outcome) })
	}
}

// noSockets judges whether sockets can be made.
func (j *judgement) noSockets() {
	j.tries("network-sockets", "the system call filter", "refused", each(probe.Families(), probe.TrySocketOf), refused)
	if j.expect.Host.Listening != nil {
		j.tries("host-loopback", "the system call filter", "refused", each(j.expect.Host.Listening, func(a string) string { return probe.TryConnect("tcp", a) }), refused)
	}
}

// limits judges the bounds of what a command uses up.
func (j *judgement) limits() {
	x := j.expect
	const by = "the kernel: a control group"
	limit := func(name, key string, want int64) {
		found := j.document.Limits[key]
		n, err := strconv.ParseInt(found, 10, 64)
		j.add(name, by, strconv.FormatInt(want, 10), found, err == nil && n >= 0 && n <= want)
	}
	if x.PIDs > 0 {
		limit("processes-limit", "pids", x.PIDs)
	}
	if x.Memory > 0 {
		limit("memory-limit", "memory", x.Memory)
		limit("swap-limit", "swap", 0)
	}
	if x.CPUs > 0 {
		found := j.document.Limits["cpus"]
		n, err := strconv.ParseFloat(found, 64)
		j.add("processors-limit", by, strconv.FormatFloat(x.CPUs, 'g', 6, 64), found, err == nil && n > 0 && n <= x.CPUs*1.001)
	}
	if x.NoCoreFiles {
		j.add("core-files", "the kernel: a resource limit", "0", j.document.Limits["core"], j.document.Limits["core"] == "0")
	}
}

// vars judges the variables, by their names.
func (j *judgement) vars() {
	var others []string
	for _, name := range j.document.Vars {
		if !slices.ContainsFunc(slices.Concat(j.expect.Vars, commandVars()), func(pattern string) bool {
			prefix, star := strings.CutSuffix(pattern, "*")
			return pattern == name || star && strings.HasPrefix(name, prefix)
		}) {
			others = append(others, name)
		}
	}
	found := fmt.Sprintf("%d, all known", len(j.document.Vars))
	if len(others) > 0 {
		found = "unknown: " + list(others)
	} else if j.document.Vars == nil {
		found = ""
	}
	j.add("variables", "the helper", "only those of the image and those that were asked for", found, len(others) == 0)
}
