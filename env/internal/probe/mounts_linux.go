package probe

import (
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mountLine is a line of mountinfo.
type mountLine struct {
	root, point, kind string
	options, super    string
}

// readMounts reads the text of mountinfo.
func readMounts(text string) []mountLine {
	var all []mountLine
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		all = append(all, mountLine{root: unescape(f[3]), point: unescape(f[4]), options: f[5], kind: g[0], super: g[2]})
	}
	return all
}

// unescape undoes how mountinfo writes blanks.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func hasOption(options, one string) bool { return strings.Contains(","+options+",", ","+one+",") }

// ownMounts are the lines of this process.
func ownMounts() ([]mountLine, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	return readMounts(string(text)), err
}

// mounts are the mounts that this process sees.
func mounts() ([]Mount, error) {
	lines, err := ownMounts()
	all := []Mount{}
	for _, l := range lines {
		all = append(all, Mount{
			Point: l.point, Type: l.kind, Root: l.root, Options: l.options, ReadOnly: hasOption(l.options, "ro") || hasOption(l.super, "ro"),
		})
	}
	if len(all) > maxEntries {
		return nil, fmt.Errorf("%d mounts, more than %d", len(all), maxEntries)
	}
	return all, err
}

// limits are the limits of this process's control group, in either version of control groups, and on core files.
func limits() map[string]string {
	all := make(map[string]string)
	var core unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CORE, &core) == nil {
		all["core"] = number(strconv.FormatUint(core.Max, 10))
	}
	c := ownGroups()
	set := func(key, value string) {
		if value != "" {
			all[key] = number(value)
		}
	}
	set("pids", c.read("pids", "pids.max"))
	if value := c.read("", "memory.max"); value != "" {
		set("memory", value)
		set("swap", c.read("", "memory.swap.max"))
	} else {
		memory, both := c.read("memory", "memory.limit_in_bytes"), c.read("memory", "memory.memsw.limit_in_bytes")
		set("memory", memory)
		m, err1 := strconv.ParseUint(memory, 10, 64)
		b, err2 := strconv.ParseUint(both, 10, 64)
		if err1 == nil && err2 == nil && b >= m {
			set("swap", strconv.FormatUint(b-m, 10))
		}
	}
	var info unix.Sysinfo_t
	if _, known := all["swap"]; !known && unix.Sysinfo(&info) == nil && info.Totalswap == 0 {
		all["swap"] = "0"
	}
	if cpus := cpus(c.read("", "cpu.max"), c.read("cpu", "cpu.cfs_quota_us"), c.read("cpu", "cpu.cfs_period_us")); cpus != "" {
		all["cpus"] = cpus
	}
	return all
}

// number returns a limit; one that is too high to limit anything is "max".
func number(value string) string {
	if n, err := strconv.ParseUint(value, 10, 64); err == nil && n < 1<<60 {
		return value
	}
	return "max"
}

// cpus is the number of processors, of what either version of control groups says.
func cpus(both, quota, period string) string {
	if f := strings.Fields(both); len(f) == 2 {
		quota, period = f[0], f[1]
	}
	if quota == "max" || quota == "-1" {
		return "max"
	}
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || p <= 0 {
		return ""
	}
	return strconv.FormatFloat(q/p, 'g', 6, 64)
}

// controlGroups are those of a process.
type controlGroups struct {
	lines []mountLine
	paths string // the text of /proc/self/cgroup
}

// ownGroups are those of this process.
func ownGroups() controlGroups {
	lines, _ := ownMounts() // without, nothing can be told
	groups, _ := os.ReadFile("/proc/self/cgroup")
	return controlGroups{lines: lines, paths: string(groups)}
}

// deviceRules are what version 1 of control groups says of devices.
func deviceRules() (rules []string) {
	for line := range strings.Lines(ownGroups().read("devices", "devices.list")) {
		rules = append(rules, strings.TrimSpace(line))
	}
	return rules
}

// read reads a file of the group for a controller of version 1, or else of the one group of version 2.
func (c controlGroups) read(controller, file string) string {
	for _, l := range c.lines {
		one := controller != "" && l.kind == "cgroup" && hasOption(l.super, controller)
		if !one && l.kind != "cgroup2" {
			continue
		}
		group := c.path(controller)
		if !one {
			group = c.path("")
		}
		below := strings.TrimPrefix(group, strings.TrimSuffix(l.root, "/"))
		for _, dir := range []string{path.Join(l.point, path.Join("/", below)), l.point} {
			if data, err := os.ReadFile(path.Join(dir, file)); err == nil {
				return strings.TrimSpace(string(data))
			}
		}
	}
	return ""
}

// path is the group of the process for a controller; the empty one is that of version 2.
func (c controlGroups) path(controller string) string {
	for line := range strings.Lines(c.paths) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && (f[1] == "" && controller == "" || controller != "" && hasOption(f[1], controller)) {
			return f[2]
		}
	}
	return "/"
}
