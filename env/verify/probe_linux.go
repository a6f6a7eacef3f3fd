package verify

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// statusLines are the reported lines of /proc/self/status.
var statusLines = []string{
	"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters",
	"Uid", "Gid", "Groups",
}

// inspect carries out q in this process.
func inspect(ctx context.Context, q request) (document, error) {
	d := document{
		Status: make(map[string]string), Tries: make(map[string]string), Limits: limits(),
		Namespaces: namespaces(), Links: links(q.Links), Boot: bootID(), Routes: routes(),
		Vars: []string{},
	}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		d.Vars = append(d.Vars, name)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return d, err
	}
	for key, value := range fields(string(status)) {
		if slices.Contains(statusLines, key) {
			d.Status[key] = value
		}
	}
	if d.Mounts, err = mounts(); err != nil {
		return d, err
	}
	for _, key := range q.Tries {
		d.Tries[key] = attempt(ctx, key, d.Routes)
	}
	return d, nil
}

// attempt returns the outcome of an attempt.
func attempt(ctx context.Context, key string, routes []string) string {
	verb, object, _ := strings.Cut(key, " ")
	switch verb {
	case "write":
		return outcome(tryWrite(object))
	case "change":
		return tryChange(object)
	case "read":
		return tryRead(object)
	case "execute":
		return tryExecute(object)
	case "find":
		_, err := os.Lstat(object)
		return outcome(err)
	case "socket":
		return trySocket(object)
	case "dial":
		return tryDial(object)
	case "call":
		return tryCall(object)
	case "family":
		return tryFamily(object)
	case "helper":
		return tryHelper(object)
	case "process":
		return processName(object)
	case "connect", "resolve":
		return tryNetwork(ctx, verb, object, routes)
	}
	return "unknown attempt"
}

// fields reads lines of the form "Key: value".
func fields(text string) map[string]string {
	all := make(map[string]string)
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			all[key] = strings.Join(strings.Fields(value), " ")
		}
	}
	return all
}

// outcome returns the name of a system error, or the text of another error.
func outcome(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return outcomeOK
	case errors.As(err, &errno):
		if name := unix.ErrnoName(errno); name != "" {
			return name
		}
	}
	return err.Error()
}

// tryWrite makes a file in dir and removes it.
func tryWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".probe-")
	if err != nil {
		return err
	}
	_, err = f.WriteString("probe")
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// tryChange opens a file for writing, or makes a file in a directory.
func tryChange(name string) string {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return outcome(tryWrite(name))
	}
	f, err := os.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err == nil {
		err = f.Close()
	}
	return outcome(err)
}

// tryRead reads a byte of a file, or a name of a directory. An empty one counts as none: a sandbox
// covers files so.
func tryRead(name string) string {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return outcome(err)
	}
	defer f.Close() //nolint:errcheck // opened for reading
	if info, err := f.Stat(); err == nil && info.IsDir() {
		_, err = f.Readdirnames(1)
		if errors.Is(err, io.EOF) {
			return outcomeNone
		}
		return outcome(err)
	}
	var b [1]byte
	n, err := f.Read(b[:])
	switch {
	case n > 0:
		return outcomeOK
	case errors.Is(err, io.EOF):
		return outcomeNone
	}
	return outcome(err)
}

// tryExecute starts a file that is not a program: the kernel reports ENOEXEC only for a file that
// may be executed.
func tryExecute(dir string) string {
	f, err := os.CreateTemp(dir, ".probe-")
	if err != nil {
		return outcome(err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // the sandbox is removed
	_, err = f.WriteString("\x00no program\n")
	if err := errors.Join(err, f.Chmod(0o700), f.Close()); err != nil {
		return outcome(err)
	}
	p, err := os.StartProcess(f.Name(), []string{f.Name()}, &os.ProcAttr{})
	switch {
	case errors.Is(err, unix.ENOEXEC):
		return outcomeOK
	case err == nil:
		_, err = p.Wait()
	}
	return outcome(err)
}

// trySocket looks for a socket, symlinks followed.
func trySocket(name string) string {
	info, err := os.Stat(name)
	if err == nil && info.Mode().Type() != fs.ModeSocket {
		return outcomeNone
	}
	return outcome(err)
}

// tryDial connects to a unix socket.
func tryDial(name string) string {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return outcome(err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was sent
	return outcome(unix.Connect(fd, &unix.SockaddrUnix{Name: name}))
}

// tryHelper opens the memory, or reads another file, of the helper, which is the parent of this
// process, or process 1.
func tryHelper(name string) string {
	pid := os.Getppid()
	if pid == 0 {
		pid = 1
	}
	full := filepath.Join("/proc", strconv.Itoa(pid), name)
	if name != "mem" {
		return tryRead(full)
	}
	f, err := os.Open(full) // address 0 is not mapped
	if err == nil {
		err = f.Close()
	}
	return outcome(err)
}

// processName returns the name of a process.
func processName(pid string) string {
	status, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return outcome(err)
	}
	return fields(string(status))["Name"]
}

// links resolves symlinks. It omits a path that does not change or cannot be resolved.
func links(names []string) map[string]string {
	all := make(map[string]string)
	for _, name := range names {
		if to, err := filepath.EvalSymlinks(name); err == nil && to != name {
			all[name] = to
		}
	}
	return all
}

// bootID returns the boot ID of this kernel; empty if it has none.
func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // optional
	return strings.TrimSpace(string(text))
}

// namespaces returns the inode numbers of this process's namespaces by kind.
func namespaces() map[string]uint64 {
	all := make(map[string]uint64)
	for _, kind := range namespaceKinds() {
		var st unix.Stat_t
		if unix.Stat("/proc/self/ns/"+kind, &st) == nil {
			all[kind] = st.Ino
		}
	}
	return all
}
