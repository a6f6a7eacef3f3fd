// Package probe looks at a sandbox from the inside: what the kernel tells a process of itself, and what it lets it do.
//
// A Request says what to try, Take tries it, and a Document is what came of it. Nothing here judges; that is for the
// other side, which knows what was promised. Every try undoes what it did, should it succeed. No packet is sent where one
// could get anywhere: with a route to another machine, connections are not tried.
//
// A Document from a sandbox is untrusted. Decode bounds it; its texts may hold anything.
package probe

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

const (
	// Version is that of the Document; there is only one.
	Version = 1
	// MaxDocument bounds a Document, in bytes.
	MaxDocument = 256 << 10
	// MaxRequest bounds a Request, in bytes.
	MaxRequest = 64 << 10
	// maxEntries bounds each list and map of a Document, maxNames each list of a Request.
	maxEntries = 1024
	maxNames   = 256
)

// Outcomes of tries. Any other is the name of the system's error, such as "EPERM", or the text of another one.
const (
	OK      = "ok"
	Skipped = "skipped: there is a route"
	None    = "none"
	// NoAnswer is that of name servers that cannot be reached.
	NoAnswer = "no answer"
)

// Request says what to try.
type Request struct {
	// Write are folders in which a file is made, and removed.
	Write []string `json:"write,omitempty"`
	// Execute are folders from which a program is started.
	Execute []string `json:"execute,omitempty"`
	// Find are names that are looked for, links not followed, and Sockets those of sockets.
	Find    []string `json:"find,omitempty"`
	Sockets []string `json:"sockets,omitempty"`
	// Change are files that are opened to be changed, which they are not, and folders in which a file is made, and removed.
	Change []string `json:"change,omitempty"`
	// Read are files and folders of which something is read.
	Read []string `json:"read,omitempty"`
	// Dial are names of unix sockets that are connected to.
	Dial []string `json:"dial,omitempty"`
	// Resolve are names of folders that may lead over links.
	Resolve []string `json:"resolve,omitempty"`
	// Connect are TCP addresses on the loopback interface that are connected to, besides those that every probe tries.
	Connect []string `json:"connect,omitempty"`
	// Helper is the file of the helper, which is read; empty if there is none.
	Helper string `json:"helper,omitempty"`
}

// Document is what a probe found.
type Document struct {
	Version int `json:"version"`
	// Status are lines of /proc/self/status, such as "CapEff" and "NoNewPrivs".
	Status map[string]string `json:"status"`
	// Tries are the outcomes by what was tried: see the names and functions that begin with Try.
	Tries map[string]string `json:"tries"`
	// Limits are "pids", "memory", "swap", in bytes, "cpus" and "core", each a decimal number or "max". What cannot be told
	// is missing.
	Limits map[string]string `json:"limits"`
	// Namespaces are the numbers of the kernel's namespaces by kind, such as "pid".
	Namespaces map[string]uint64 `json:"namespaces"`
	Mounts     []Mount           `json:"mounts"`
	// Links are the names of Request.Resolve that lead elsewhere, and where.
	Links map[string]string `json:"links,omitempty"`
	// Boot is a number that a kernel gives itself each time it starts.
	Boot string `json:"boot,omitempty"`
	// Interfaces are the names of network interfaces that are up, and Routes those of interfaces but lo that have one. Both are
	// nil where sockets are refused, by which one asks.
	Interfaces []string `json:"interfaces"`
	Routes     []string `json:"routes"`
	// Vars are the names of the variables.
	Vars []string `json:"vars"`
	// Processes are the names of processes by number, without the probe's own.
	Processes map[string]string `json:"processes"`
	// Devices are the device files in /dev, without terminals, each with its kind and numbers, such as "c 1:3".
	Devices map[string]string `json:"devices"`
	// DeviceRules are the devices that the control group allows, in the kernel's words, such as "c 1:3 rwm". Only version 1 of
	// control groups tells them.
	DeviceRules []string `json:"device_rules,omitempty"`
	// Setuid is the program with which it was tried whether such a program raises its user; empty if none was found.
	Setuid string `json:"setuid,omitempty"`
}

// Mount is a file system that the sandbox sees.
type Mount struct {
	Point string `json:"point"`
	Type  string `json:"type"`
	// Root is the name, in its file system, of what is mounted; "/" is all of it.
	Root string `json:"root"`
	// Options of the mount, such as "rw,nosuid".
	Options string `json:"options"`
	// ReadOnly says that nobody can write by way of this mount.
	ReadOnly bool `json:"read_only,omitempty"`
}

// Keys of Document.Tries.
const (
	TryMount      = "mount"
	TryUnshare    = "unshare"
	TryClone      = "clone"
	TryClone3     = "clone3"
	TryPtrace     = "ptrace"
	TryKeyctl     = "keyctl"
	TryBPF        = "bpf"
	TryPerf       = "perf_event_open"
	TryIOUring    = "io_uring_setup"
	TrySyslog     = "syslog"
	TryMknod      = "mknod"
	TrySetuid     = "setuid"
	TryHelperFile = "helper file"
	TryResolve    = "resolve example.com"
)

// TryWrite is the key of making a file in a folder.
func TryWrite(dir string) string { return "write " + dir }

// TryExecute is the key of the start of a program in a folder.
func TryExecute(dir string) string { return "execute " + dir }

// TryFind is the key of the search for a name.
func TryFind(name string) string { return "find " + name }

// TrySocket is the key of the search for a socket, links followed; what is no socket is None.
func TrySocket(name string) string { return "socket " + name }

// TryFiltered is the key of one of Filtered.
func TryFiltered(call string) string { return "filtered " + call }

// Filtered are system calls that the kernel would carry out for anybody, or refuse for another reason, and only a filter
// refuses them for want of rights. Some kernels do not have some of them.
func Filtered() []string {
	return []string{"add_key", "open_by_handle_at", "open_tree", "personality", "setns", "userfaultfd"}
}

// TryConnect is the key of a connection.
func TryConnect(network, address string) string { return network + " " + address }

// TryAccess is the key of the question whether a file of the kernel may be written, which is not done.
func TryAccess(name string) string { return "access " + name }

// TryDial is the key of a connection to a unix socket.
func TryDial(name string) string { return "dial " + name }

// TryChange is the key of changing a file or a folder.
func TryChange(name string) string { return "change " + name }

// TryRead is the key of reading something of a file or folder; None if there is nothing in it.
func TryRead(name string) string { return "read " + name }

// Target is an address outside of the sandbox.
type Target struct{ Network, Address string }

// Outside are the addresses that every probe tries to connect to where there is no route, and Metadata those of them where
// machines in clouds get their credentials. The slices are the caller's.
func Outside() []Target {
	return append([]Target{{"tcp", "1.1.1.1:443"}, {"tcp", "[2606:4700:4700::1111]:443"}, {"udp", "1.1.1.1:53"}}, Metadata()...)
}

// Metadata are the addresses of credentials among Outside.
func Metadata() []Target {
	return []Target{{"tcp", "169.254.169.254:80"}, {"tcp", "[fd00:ec2::254]:80"}}
}

// Families are kinds of sockets that are made, and closed.
func Families() []string {
	return []string{"tcp4", "udp4", "tcp6", "udp6", "raw", "unix", "netlink", "packet"}
}

// TrySocketOf is the key of making a socket of one of Families.
func TrySocketOf(family string) string { return "make socket " + family }

// Kernel are files and folders by which the whole machine is changed.
func Kernel() []string {
	return []string{
		"/proc/sysrq-trigger", "/proc/sys", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/irq", "/proc/bus", "/proc/fs",
		"/sys", "/sys/kernel", "/sys/fs/cgroup",
	}
}

// Secret are files by which the memory of the machine is read.
func Secret() []string { return []string{"/proc/kcore", "/proc/keys", "/proc/timer_list", "/dev/mem"} }

// Helpers are files by which the memory of the helper is read.
func Helpers() []string { return []string{"mem", "environ", "maps", "fd/0", "exe"} }

// TryHelper is the key of reading one of Helpers.
func TryHelper(name string) string { return "helper " + name }

// Decode reads a Document that a sandbox gave.
func Decode(data []byte) (Document, error) {
	var d Document
	if err := decode(data, MaxDocument, &d); err != nil {
		return Document{}, err
	}
	if d.Version != Version {
		return Document{}, fmt.Errorf("version %d, want %d", d.Version, Version)
	}
	for what, n := range map[string]int{
		"status": len(d.Status), "tries": len(d.Tries), "limits": len(d.Limits), "namespaces": len(d.Namespaces), "mounts": len(d.Mounts),
		"interfaces": len(d.Interfaces), "routes": len(d.Routes), "vars": len(d.Vars), "processes": len(d.Processes), "devices": len(d.Devices), "links": len(d.Links),
		"device rules": len(d.DeviceRules),
	} {
		if n > maxEntries {
			return Document{}, fmt.Errorf("%d %s, more than %d", n, what, maxEntries)
		}
	}
	return d, nil
}

// DecodeRequest reads a Request.
func DecodeRequest(r io.Reader) (Request, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxRequest+1))
	if err != nil {
		return Request{}, err
	}
	var q Request
	if err := decode(data, MaxRequest, &q); err != nil {
		return Request{}, err
	}
	for _, names := range [][]string{q.Write, q.Execute, q.Find, q.Sockets, q.Resolve, q.Connect, q.Read, q.Dial, q.Change} {
		if len(names) > maxNames {
			return Request{}, fmt.Errorf("%d names, more than %d", len(names), maxNames)
		}
	}
	for _, name := range append(append([]string{}, q.Write...), q.Execute...) {
		if !path.IsAbs(name) {
			return Request{}, fmt.Errorf("%q is no absolute name", name)
		}
	}
	for _, a := range q.Connect {
		if !strings.HasPrefix(a, "127.0.0.1:") {
			return Request{}, fmt.Errorf("%q is not on 127.0.0.1", a)
		}
	}
	return q, nil
}

// decode reads one JSON value of known fields, and nothing behind it.
func decode(data []byte, limit int, v any) error {
	if len(data) > limit {
		return fmt.Errorf("more than %d bytes", limit)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something behind the end")
	}
	return nil
}
