package sandbox

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// Bounds of the search for sockets of other processes.
const (
	maxProcesses    = 10_000
	maxSocketProbes = 20_000
)

// sockets returns the unix sockets of this machine that have a name, by all of their names. With
// others these are also those of relative names, and those of processes in other namespaces, as far
// as this user may look at the processes.
func sockets(mounts mountTable, others bool) (names []string) {
	s := &socketSearch{mounts: mounts, files: mounts.files(), found: make(map[string]bool)}
	// Without the table no other network can be reached either.
	unresolved := slices.DeleteFunc(readSockets("/proc/self/net/unix"), func(name string) bool {
		return filepath.IsAbs(name) && s.add(name, nil)
	})
	if others {
		s.ofProcesses(unresolved)
	}
	for name := range s.found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// socketSearch collects sockets.
type socketSearch struct {
	mounts, files mountTable
	found         map[string]bool
	probes        int
}

// add adds a socket and its aliases, and reports whether it is one. If like is set, it has to be
// the same socket.
func (s *socketSearch) add(name string, like *unix.Stat_t) bool {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return false
	}
	stat, ok := statSocket(real)
	if !ok || like != nil && (stat.Dev != like.Dev || stat.Ino != like.Ino) {
		return false
	}
	s.found[real] = true
	for _, a := range s.files.aliases(real) {
		if _, ok := statSocket(a.name); ok {
			s.found[a.name] = true
		}
	}
	return true
}

func statSocket(name string) (stat unix.Stat_t, ok bool) {
	err := unix.Lstat(name, &stat)
	return stat, err == nil && stat.Mode&unix.S_IFMT == unix.S_IFSOCK
}

// socketView is how some processes see the file system.
type socketView struct{ net, mounts, root string }

// ofProcesses adds the sockets that other processes have under names which mean something else, or
// nothing, in this one. unresolved are such names in the network namespace of this process.
func (s *socketSearch) ofProcesses(unresolved []string) {
	own := viewOf("self")
	tables := map[string][]string{own.net: unresolved}
	seen := make(map[socketView]bool)
	dirs := make(map[string]bool)
	for _, pid := range processes() {
		net, err := os.Readlink("/proc/" + pid + "/ns/net")
		if err != nil {
			continue // it is gone, or that of another user
		}
		names, known := tables[net]
		if !known {
			names = readSockets("/proc/" + pid + "/net/unix")
			tables[net] = names
		}
		if len(names) == 0 {
			continue
		}
		view := viewOf(pid)
		cwd, _ := os.Readlink("/proc/" + pid + "/cwd")
		place := view.mounts + view.root + cwd
		for _, name := range names {
			switch {
			case filepath.IsAbs(name) && !seen[view] && (net != own.net || view != own):
				s.probe(pid, name, view, own)
			case !filepath.IsAbs(name) && cwd != "" && !dirs[net+place]:
				dir := strings.TrimPrefix(cwd, strings.TrimRight(view.root, "/"))
				s.probe(pid, filepath.Join("/", dir, name), view, own)
			}
		}
		seen[view], dirs[net+place] = true, true
	}
}

func viewOf(pid string) (v socketView) {
	v.net, _ = os.Readlink("/proc/" + pid + "/ns/net")
	v.mounts, _ = os.Readlink("/proc/" + pid + "/ns/mnt")
	v.root, _ = os.Readlink("/proc/" + pid + "/root")
	return v
}

// probe adds a socket by its name in a process, which may have another root directory and other
// mounts.
func (s *socketSearch) probe(pid, name string, view, own socketView) {
	if s.probes++; s.probes > maxSocketProbes {
		return
	}
	stat, ok := statSocket("/proc/" + pid + "/root" + name)
	if !ok {
		return
	}
	if view.mounts == own.mounts {
		s.add(filepath.Join(view.root, name), &stat)
		return
	}
	f, err := os.Open("/proc/" + pid + "/mountinfo")
	if err != nil {
		return
	}
	defer f.Close() //nolint:errcheck // it was only read
	all, err := mountinfo.GetMountsFromReader(f, nil)
	if err != nil {
		return
	}
	if m := mountTable(all).of(name); m != nil {
		for _, here := range s.mounts.names(place{m.Major, m.Minor, inside(m, name)}) {
			s.add(here, &stat)
		}
	}
}

// processes returns the identifiers of processes.
func processes() (pids []string) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close() //nolint:errcheck // it was only read
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		if _, err := strconv.Atoi(name); err == nil && len(pids) < maxProcesses {
			pids = append(pids, name)
		}
	}
	return pids
}

// readSockets returns the names in a table of sockets; none if it cannot be read.
func readSockets(table string) []string {
	f, err := os.Open(table)
	if err != nil {
		return nil
	}
	defer f.Close() //nolint:errcheck // it was only read
	return scanSockets(f)
}

// scanSockets returns the paths in a table like /proc/net/unix, without abstract names. The path
// follows the seventh column.
func scanSockets(r io.Reader) (names []string) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		rest := lines.Text()
		if strings.HasPrefix(rest, "Num ") {
			continue // the titles of the columns
		}
		for range 7 {
			_, rest, _ = strings.Cut(strings.TrimLeft(rest, " "), " ")
		}
		if rest != "" && !strings.HasPrefix(rest, "@") {
			names = append(names, rest)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
