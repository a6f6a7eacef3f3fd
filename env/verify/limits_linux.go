package verify

import (
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

func hasOption(options, one string) bool { return strings.Contains(","+options+",", ","+one+",") }

// mounts returns the mounts that this process sees.
func mounts() ([]mountPoint, error) {
	lines, err := mountinfo.GetMounts(nil)
	all := []mountPoint{}
	for _, l := range lines {
		all = append(all, mountPoint{
			Point: l.Mountpoint, Type: l.FSType, Root: l.Root, Options: l.Options,
			ReadOnly: hasOption(l.Options, "ro") || hasOption(l.VFSOptions, "ro"),
		})
	}
	if len(all) > maxEntries {
		return nil, fmt.Errorf("%d mounts, more than %d", len(all), maxEntries)
	}
	return all, err
}

// limits returns the limits of this process's control group, in either version of control groups.
func limits() map[string]string {
	all := make(map[string]string)
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
		memory := c.read("memory", "memory.limit_in_bytes")
		both := c.read("memory", "memory.memsw.limit_in_bytes")
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
	quota, period := c.read("cpu", "cpu.cfs_quota_us"), c.read("cpu", "cpu.cfs_period_us")
	if cpus := cpus(c.read("", "cpu.max"), quota, period); cpus != "" {
		all["cpus"] = cpus
	}
	return all
}

// number returns a limit; "max" if it limits nothing.
func number(value string) string {
	if n, err := strconv.ParseUint(value, 10, 64); err == nil && n < 1<<60 {
		return value
	}
	return "max"
}

// cpus returns the number of processors: both is cpu.max of version 2, quota and period are of
// version 1.
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

// controlGroups are the mounted control groups and the groups of a process.
type controlGroups struct {
	lines []*mountinfo.Info
	paths string // the text of /proc/self/cgroup
}

// ownGroups returns the control groups of this process.
func ownGroups() controlGroups {
	lines, _ := mountinfo.GetMounts(nil) // without them all limits are missing
	groups, _ := os.ReadFile("/proc/self/cgroup")
	return controlGroups{lines: lines, paths: string(groups)}
}

// read reads a file of the group of a version 1 controller, else of the version 2 group.
func (c controlGroups) read(controller, file string) string {
	for _, l := range c.lines {
		one := controller != "" && l.FSType == "cgroup" && hasOption(l.VFSOptions, controller)
		if !one && l.FSType != "cgroup2" {
			continue
		}
		group := c.path(controller)
		if !one {
			group = c.path("")
		}
		below := strings.TrimPrefix(group, strings.TrimSuffix(l.Root, "/"))
		for _, dir := range []string{path.Join(l.Mountpoint, path.Join("/", below)), l.Mountpoint} {
			if data, err := os.ReadFile(path.Join(dir, file)); err == nil {
				return strings.TrimSpace(string(data))
			}
		}
	}
	return ""
}

// path returns the group of the process for a version 1 controller, or, if that is empty, its
// version 2 group.
func (c controlGroups) path(controller string) string {
	for line := range strings.Lines(c.paths) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && (f[1] == controller || controller != "" && hasOption(f[1], controller)) {
			return f[2]
		}
	}
	return "/"
}
