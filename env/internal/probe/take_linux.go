package probe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// statusLines are the lines of /proc/self/status that a Document has.
const statusLines = " CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp Seccomp_filters Uid Gid Groups "

// Take does what q asks for. The end of ctx ends tries that wait. It is for a process of its own.
func Take(ctx context.Context, q Request) (Document, error) {
	d := Document{
		Version: Version, Status: make(map[string]string), Tries: make(map[string]string), Limits: limits(),
		Namespaces: Namespaces(), Processes: processes(), Vars: varNames(os.Environ()), Devices: devices(),
		DeviceRules: deviceRules(), Links: links(q.Resolve), Boot: Boot(),
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return d, err
	}
	for key, value := range fields(string(status)) {
		if strings.Contains(statusLines, " "+key+" ") {
			d.Status[key] = value
		}
	}
	if d.Mounts, err = mounts(); err != nil {
		return d, err
	}
	if d.Interfaces, d.Routes, err = network(); err != nil {
		return d, err
	}
	d.tryFiles(q)
	d.tryHelper(q.Helper)
	d.tryCalls(d.scratch(q))
	d.Setuid, d.Tries[TrySetuid] = trySetuid(ctx)
	d.tryNetwork(ctx, q)
	return d, nil
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

// outcome is the text of an error.
func outcome(err error) string {
	var errno syscall.Errno
	switch {
	case err == nil:
		return OK
	case errors.As(err, &errno):
		if name := unix.ErrnoName(errno); name != "" {
			return name
		}
	}
	return err.Error()
}

// tryFiles tries what q names, and the files of the kernel.
func (d *Document) tryFiles(q Request) {
	for _, dir := range q.Write {
		d.Tries[TryWrite(dir)] = outcome(tryWrite(dir))
	}
	for _, dir := range q.Execute {
		d.Tries[TryExecute(dir)] = tryExecute(dir)
	}
	for _, name := range q.Find {
		_, err := os.Lstat(name)
		d.Tries[TryFind(name)] = outcome(err)
	}
	for _, name := range q.Sockets {
		d.Tries[TrySocket(name)] = trySocket(name)
	}
	for _, name := range q.Change {
		d.Tries[TryChange(name)] = tryChange(name)
	}
	for _, name := range q.Dial {
		d.Tries[TryDial(name)] = tryDial(name)
	}
	for _, name := range q.Read {
		d.Tries[TryRead(name)] = tryRead(name)
	}
	for _, name := range Kernel() {
		d.Tries[TryAccess(name)] = outcome(unix.Faccessat(unix.AT_FDCWD, name, unix.W_OK, 0))
	}
	for _, name := range Secret() {
		d.Tries[TryRead(name)] = tryRead(name)
	}
}

// tryChange opens a file to be changed, or makes one in a folder.
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

// tryDial connects to a unix socket.
func tryDial(name string) string {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return outcome(err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was sent
	return outcome(unix.Connect(fd, &unix.SockaddrUnix{Name: name}))
}

// trySocket looks for a socket.
func trySocket(name string) string {
	info, err := os.Stat(name)
	if err == nil && info.Mode().Type() != fs.ModeSocket {
		return None
	}
	return outcome(err)
}

// links are the names that lead elsewhere. One that cannot be followed leads nowhere else.
func links(names []string) map[string]string {
	all := make(map[string]string)
	for _, name := range names {
		if to, err := filepath.EvalSymlinks(name); err == nil && to != name {
			all[name] = to
		}
	}
	return all
}

// Boot returns the number that the kernel of this machine has given itself when it started; empty if it does not say.
func Boot() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // some kernels have none
	return strings.TrimSpace(string(text))
}

// scratch is a folder in which files can be made.
func (d *Document) scratch(q Request) string {
	for _, dir := range q.Write {
		if d.Tries[TryWrite(dir)] == OK {
			return dir
		}
	}
	return os.TempDir()
}

func tryWrite(dir string) error {
	f, err := os.CreateTemp(dir, ".probe-")
	if err != nil {
		return err
	}
	_, err = f.WriteString("probe")
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// tryExecute starts a file that is no program, which the kernel only says of a file that may be executed.
func tryExecute(dir string) string {
	f, err := os.CreateTemp(dir, ".probe-")
	if err != nil {
		return outcome(err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // the sandbox is thrown away
	_, err = f.WriteString("\x00no program\n")
	if err := errors.Join(err, f.Chmod(0o700), f.Close()); err != nil {
		return outcome(err)
	}
	err = start(f.Name(), &os.ProcAttr{})
	if errors.Is(err, unix.ENOEXEC) {
		return OK
	}
	return outcome(err)
}

// start starts a program that ends by itself, if it can be started at all, and waits for it.
func start(name string, attr *os.ProcAttr) error {
	p, err := os.StartProcess(name, []string{name}, attr)
	if err != nil {
		return err
	}
	_, err = p.Wait()
	return err
}

// tryRead reads a byte of a file, or a name of a folder. An empty one is as good as none: it is what covers the kernel's.
func tryRead(name string) string {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return outcome(err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	if info, err := f.Stat(); err == nil && info.IsDir() {
		if _, err := f.Readdirnames(1); !errors.Is(err, io.EOF) {
			return outcome(err)
		}
		return None
	}
	var b [1]byte
	if n, err := f.Read(b[:]); n == 0 {
		if errors.Is(err, io.EOF) {
			return None
		}
		return outcome(err)
	}
	return OK
}

// tryHelper tries to read the helper's file and its memory. The helper is the parent of this process, or process 1.
func (d *Document) tryHelper(file string) {
	if file != "" {
		d.Tries[TryHelperFile] = tryRead(file)
	}
	pid := os.Getppid()
	if pid == 0 {
		pid = 1
	}
	for _, name := range Helpers() {
		full := filepath.Join("/proc", strconv.Itoa(pid), name)
		var err error
		switch name {
		case "exe", "fd/0":
			_, err = os.Readlink(full)
		case "mem": // no byte of it is at 0
			var f *os.File
			if f, err = os.Open(full); err == nil {
				err = f.Close()
			}
		default:
			d.Tries[TryHelper(name)] = tryRead(full)
			continue
		}
		d.Tries[TryHelper(name)] = outcome(err)
	}
}

// varNames are the names of variables.
func varNames(vars []string) []string {
	names := []string{}
	for _, v := range vars {
		name, _, _ := strings.Cut(v, "=")
		names = append(names, name)
	}
	return names
}

// Namespaces returns the numbers of this process's namespaces by kind, such as "pid".
func Namespaces() map[string]uint64 {
	all := make(map[string]uint64)
	for _, kind := range []string{"pid", "net", "ipc", "uts", "mnt", "user", "cgroup", "time"} {
		var st unix.Stat_t
		if unix.Stat("/proc/self/ns/"+kind, &st) == nil {
			all[kind] = st.Ino
		}
	}
	return all
}

// processes are the names of the processes that can be seen; of very many the first.
func processes() map[string]string {
	all := make(map[string]string)
	entries, _ := os.ReadDir("/proc") // what cannot be read shows nothing
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil || e.Name() == strconv.Itoa(os.Getpid()) || len(all) >= maxEntries/2 {
			continue
		}
		if status, err := os.ReadFile("/proc/" + e.Name() + "/status"); err == nil {
			all[e.Name()] = fields(string(status))["Name"]
		}
	}
	return all
}

// devices are the device files in /dev. Those of terminals, /dev/pts, are another file system.
func devices() map[string]string {
	all := make(map[string]string)
	_ = filepath.WalkDir("/dev", func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || len(all) >= maxEntries/2:
			return fs.SkipDir
		case e.IsDir() && name == "/dev/pts":
			return fs.SkipDir
		case e.Type()&fs.ModeDevice != 0:
			all[name] = numbers(name)
		}
		return nil
	})
	return all
}

// numbers are the kind and the numbers of a device.
func numbers(name string) string {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return outcome(err)
	}
	kind := "c"
	if st.Mode&unix.S_IFMT == unix.S_IFBLK {
		kind = "b"
	}
	device := uint64(st.Rdev) //nolint:unconvert // it has another size on some processors
	return fmt.Sprintf("%s %d:%d", kind, unix.Major(device), unix.Minor(device))
}
