package daemons

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// dirPrefix begins the name of each daemon's directory; the process that made it follows. It is
// short for the sockets in the directory, whose names may have 107 bytes.
const dirPrefix = "sa-dockerd-"

// Docker is a private dockerd. Its methods may be called concurrently, but Kill, Start, Restart and
// Stop follow one another.
type Docker struct {
	config DockerConfig
	dir    string // holds all files of the daemon
	bridge string // the name of its bridge network's device, or empty
	client *http.Client

	mu      sync.Mutex
	cmd     *exec.Cmd
	exited  chan struct{} // closed when cmd has ended
	spaces  *os.File      // holds the mount namespace in which the daemon starts again
	port    string        // the TCP port, once known
	stopped bool          // by Stop
}

// Available returns why this machine cannot start a daemon; nil means that it can.
func Available() error {
	if os.Geteuid() != 0 {
		return errors.New("a private dockerd needs root")
	}
	for _, program := range []string{
		"dockerd", "containerd", "runc", "ip", "nsenter", "mount", "tar",
	} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("a private dockerd needs %s", program)
		}
	}
	return nil
}

// StartDocker starts a daemon and returns when it answers; the caller calls Stop. It first removes
// the leftovers of killed processes.
func StartDocker(ctx context.Context, config DockerConfig) (*Docker, error) {
	if err := Available(); err != nil {
		return nil, err
	}
	if config.Dir == "" {
		config.Dir = os.TempDir()
	}
	if err := sweep(config.Dir, dirPrefix); err != nil {
		return nil, fmt.Errorf("remove the leftovers of an earlier run: %w", err)
	}
	dir, err := os.MkdirTemp(config.Dir, fmt.Sprintf("%s%d-", dirPrefix, os.Getpid()))
	if err != nil {
		return nil, err
	}
	d := &Docker{config: config, dir: dir, client: unixClient(filepath.Join(dir, "docker.sock"))}
	err = os.WriteFile(filepath.Join(dir, "daemon.json"), []byte("{}\n"), 0o600)
	if err == nil && config.TLS {
		err = writeCertificates(d.CertDir())
	}
	if err == nil && config.Bridge {
		d.bridge, err = addBridge(filepath.Base(dir))
	}
	if err == nil {
		err = d.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

// Host is the address of the daemon's socket, as DOCKER_HOST has it.
func (d *Docker) Host() string { return "unix://" + filepath.Join(d.dir, "docker.sock") }

// TLSHost is the address of the daemon's TCP port, as DOCKER_HOST has it. It stays the same when
// the daemon restarts.
func (d *Docker) TLSHost() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return "tcp://" + net.JoinHostPort("127.0.0.1", d.port)
}

// CertDir is a directory with the certificates for TLSHost under the names that DOCKER_CERT_PATH
// requires.
func (d *Docker) CertDir() string { return filepath.Join(d.dir, "certificates") }

// Pid is the process of the daemon, as it was last started.
func (d *Docker) Pid() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cmd.Process.Pid
}

// Kill ends the daemon by SIGKILL. Its containers go on, as they do when a daemon crashes; Start
// takes them over and ends them, unless Args has --live-restore.
func (d *Docker) Kill() error { return d.end(unix.SIGKILL) }

// Restart ends the daemon by SIGTERM, which ends its containers too, and starts it again.
func (d *Docker) Restart(ctx context.Context) error {
	if err := d.end(unix.SIGTERM); err != nil {
		return err
	}
	return d.Start(ctx)
}

// Start starts the daemon again after Kill, and returns when it answers.
func (d *Docker) Start(ctx context.Context) error {
	since, err := d.launch()
	if err != nil {
		return err
	}
	answers := func() bool { return d.exitedNow() || ping(ctx, d.client) == nil }
	if err := wait(ctx, startTimeout, answers); err != nil || d.exitedNow() {
		if err == nil {
			err = errors.New("the process ended at once")
		}
		return fmt.Errorf("start dockerd: %w\n%s", err, d.logTail())
	}
	if !d.config.TLS {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return wait(ctx, startTimeout, func() bool {
		d.port = d.listening(since)
		return d.port != ""
	})
}

// launch starts the process and returns the offset at which its log begins.
func (d *Docker) launch() (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	logFile, err := os.OpenFile(d.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer logFile.Close() //nolint:errcheck // the daemon has it open
	since, err := logFile.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	if err := d.removePIDFiles(); err != nil {
		return 0, err
	}
	// The first start makes the mount namespace: the daemon's mounts end with its last process, and
	// the fixed directory of containerd's sockets is separate. The mounts have the directory's name as
	// their source, by which members finds the processes of the namespace.
	const script = `for dir in /run/containerd /etc/docker; do
	mkdir -p "$dir" && mount -t tmpfs "$0" "$dir" || exit 1
done
exec "$@"`
	var cmd *exec.Cmd
	if d.spaces == nil {
		cmd = exec.Command("sh", append([]string{"-c", script, d.dir, "dockerd"}, d.args()...)...)
		cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Unshareflags: unix.CLONE_NEWNS}
	} else {
		cmd = exec.Command("nsenter", append([]string{"--mount=/proc/self/fd/3", "--", "dockerd"},
			d.args()...)...)
		cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
		cmd.ExtraFiles = []*os.File{d.spaces}
	}
	cmd.Env = append(without(os.Environ(), "DOCKER_", "NOTIFY_SOCKET="), "TMPDIR="+d.dir)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	return since, d.run(cmd)
}

// removePIDFiles removes the PIDs that an earlier start has written: the daemon would mistake a
// zombie, or another process that has the PID now, for itself. It ends the earlier containerd.
func (d *Docker) removePIDFiles() error {
	name := filepath.Join(d.dir, "exec", "containerd", "containerd.pid")
	if text, err := os.ReadFile(name); err == nil {
		pid, err := strconv.Atoi(string(bytes.TrimSpace(text)))
		if err != nil {
			return fmt.Errorf("read the PID of containerd: %w", err)
		}
		err = wait(context.Background(), stopTimeout, func() bool {
			runs := slices.Contains(members(filepath.Base(d.dir)), pid)
			if runs {
				_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
			}
			return !runs
		})
		if err != nil {
			return fmt.Errorf("end containerd: %w", err)
		}
	}
	return errors.Join(os.RemoveAll(name), os.RemoveAll(filepath.Join(d.dir, "pid")))
}

// run starts cmd and closes d.exited when it ends.
func (d *Docker) run(cmd *exec.Cmd) error {
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start dockerd: %w", err)
	}
	exited := make(chan struct{})
	d.cmd, d.exited = cmd, exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // tests kill daemons
	}()
	if d.spaces == nil {
		spaces, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", cmd.Process.Pid))
		if err != nil {
			return fmt.Errorf("open the mount namespace of dockerd: %w", err)
		}
		d.spaces = spaces
	}
	return nil
}

func (d *Docker) args() []string {
	bridge := d.bridge
	if bridge == "" {
		bridge = "none"
	}
	args := []string{
		"--host", d.Host(), "--config-file", filepath.Join(d.dir, "daemon.json"),
		"--data-root", filepath.Join(d.dir, "root"), "--exec-root", filepath.Join(d.dir, "exec"),
		"--pidfile", filepath.Join(d.dir, "pid"), "--cgroup-parent", "/" + filepath.Base(d.dir),
		"--exec-opt", "native.cgroupdriver=cgroupfs", "--bridge", bridge, "--iptables=false",
		"--ip6tables=false",
		"--ip-forward=false", "--ip-masq=false", "--userland-proxy=false",
	}
	if d.config.TLS {
		port := d.port
		if port == "" {
			port = "0"
		}
		args = append(args, "--host", "tcp://127.0.0.1:"+port, "--tlsverify", "--tlscacert",
			filepath.Join(d.CertDir(), "ca.pem"),
			"--tlscert", filepath.Join(d.CertDir(), "server-cert.pem"), "--tlskey",
			filepath.Join(d.CertDir(), "server-key.pem"))
	}
	return append(args, d.config.Args...)
}

var listenLine = regexp.MustCompile(`API listen on 127\.0\.0\.1:(\d+)`)

// listening returns the TCP port that the log reports after the offset since.
func (d *Docker) listening(since int64) string {
	data, err := os.ReadFile(d.log())
	if err != nil || int64(len(data)) < since {
		return ""
	}
	if m := listenLine.FindSubmatch(data[since:]); m != nil {
		return string(m[1])
	}
	return ""
}

// end sends the daemon a signal and waits for its end.
func (d *Docker) end(signal unix.Signal) error {
	d.mu.Lock()
	cmd, exited := d.cmd, d.exited
	d.mu.Unlock()
	if cmd == nil {
		return nil
	}
	if err := cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send dockerd %v: %w", signal, err)
	}
	select {
	case <-exited:
		return nil
	case <-time.After(stopTimeout):
		return fmt.Errorf("dockerd still runs %v after %v", stopTimeout, signal)
	}
}

func (d *Docker) exitedNow() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.exited:
		return true
	default:
		return false
	}
}

func (d *Docker) log() string { return filepath.Join(d.dir, "log") }

// logTail returns the end of the daemon's log.
func (d *Docker) logTail() string {
	data, err := os.ReadFile(d.log())
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-4096):])
}

// Stop ends the daemon and its containers, removes everything that it made, and fails if something
// is left. Further calls do nothing.
func (d *Docker) Stop() error {
	d.mu.Lock()
	stopped := d.stopped
	d.stopped = true
	d.mu.Unlock()
	if stopped {
		return nil
	}
	if d.cmd != nil && !d.exitedNow() {
		// Removing containers is quicker than stopping them.
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		removeContainers(ctx, d.client)
		cancel()
		// remove kills the processes that SIGTERM leaves.
		if err := d.end(unix.SIGTERM); err != nil {
			_ = d.end(unix.SIGKILL)
		}
	}
	d.client.CloseIdleConnections()
	if d.spaces != nil {
		_ = d.spaces.Close()
	}
	return remove(d.dir)
}

// without returns the variables that begin with none of the prefixes.
func without(vars []string, prefixes ...string) []string {
	var kept []string
next:
	for _, v := range vars {
		for _, prefix := range prefixes {
			if strings.HasPrefix(v, prefix) {
				continue next
			}
		}
		kept = append(kept, v)
	}
	return kept
}
