package daemons

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// kubePrefix begins the name of a cluster's directory, as dirPrefix does.
	kubePrefix = "sa-kube-"
	// kubeDevice begins the names of the host's ends of the clusters' networks.
	kubeDevice = "sandboxkube"
	// kubeNode is the name of the only node, and kubePause the image of its pods' sandboxes.
	kubeNode  = "node"
	kubePause = Empty
)

// Kube is a cluster of one node. Its programs run in a network and a mount namespace of their own,
// which the host reaches by one device. Its methods may be called concurrently, but those that end
// and start programs follow one another.
type Kube struct {
	dir    string
	binary string
	device string // the host's end of the network
	host   string // the address of that end
	node   string // the address of the node
	pods   string // the addresses of pods

	spaces []*os.File // the mount and the network namespace

	mu       sync.Mutex
	programs map[string]*kubeProgram
	stopped  bool
}

// kubeProgram is a running program.
type kubeProgram struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// KubeAvailable returns why this machine cannot start a cluster; nil means that it can.
func KubeAvailable() error {
	if err := Available(); err != nil {
		return err
	}
	for _, program := range []string{"unshare", "ctr", "iptables"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("a cluster needs %s", program)
		}
	}
	if _, err := os.Stat(cniDir + "/bridge"); err != nil {
		return errors.New("a cluster needs the package containernetworking-plugins")
	}
	return nil
}

const cniDir = "/usr/lib/cni"

// StartKube starts a cluster with images of a daemon, and returns when its node is ready; the
// caller calls Stop. Cache is as in DockerConfig.
func StartKube(ctx context.Context, from *Docker, images ...string) (_ *Kube, err error) {
	if err := KubeAvailable(); err != nil {
		return nil, err
	}
	if err := sweep(os.TempDir(), kubePrefix); err != nil {
		return nil, fmt.Errorf("remove the leftovers of an earlier run: %w", err)
	}
	binary, err := BuildKube(ctx, from.config.Cache)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", kubePrefix, os.Getpid()))
	if err != nil {
		return nil, err
	}
	k := &Kube{dir: dir, binary: binary, programs: make(map[string]*kubeProgram)}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.Stop())
		}
	}()
	if err := k.makeSpaces(); err != nil {
		return nil, err
	}
	if err := k.writeFiles(); err != nil {
		return nil, err
	}
	for _, name := range []string{"etcd", "containerd"} {
		if err := k.Start(name); err != nil {
			return nil, err
		}
	}
	loaded := make(chan error, 1)
	go func() { loaded <- k.load(ctx, from, append(images, kubePause)) }()
	for _, name := range []string{
		"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy",
	} {
		if err := k.Start(name); err != nil {
			return nil, errors.Join(err, <-loaded)
		}
		if name == "kube-apiserver" {
			err = k.await(ctx, "the API server", "get", "--raw=/readyz")
		}
		if err != nil {
			return nil, errors.Join(err, <-loaded)
		}
	}
	if err := errors.Join(k.await(ctx, "the node", "wait", "--for=condition=Ready", "--timeout=1s",
		"node/"+kubeNode), <-loaded); err != nil {
		return nil, err
	}
	return k, k.await(ctx, "a service account", "get", "serviceaccount", "default")
}

// Config is a kubeconfig file of an administrator.
func (k *Kube) Config() string { return filepath.Join(k.dir, "admin.kubeconfig") }

// await runs kubectl until it succeeds.
func (k *Kube) await(ctx context.Context, what string, args ...string) error {
	var last error
	err := wait(ctx, startTimeout, func() bool {
		_, last = Kubectl(ctx, k.Config(), "", args...)
		return last == nil
	})
	if err != nil {
		return fmt.Errorf("wait for %s: %w: %w\n%s", what, err, last, k.LogTail())
	}
	return nil
}

// makeSpaces makes the namespaces and connects the network to the host. The mounts have the
// directory's name as their source, by which members finds the processes of the namespace.
func (k *Kube) makeSpaces() error {
	const script = `set -e
for dir in /run /var/lib /var/log; do mount -t tmpfs "$0" "$dir"; done
mkdir -p /run/lock /var/lib/cni
ip link set lo up
echo ready
exec sleep infinity`
	cmd := exec.Command("sh", "-c", script, k.dir)
	cmd.SysProcAttr = &unix.SysProcAttr{
		Setsid: true, Unshareflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWUTS,
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	k.track("namespaces", cmd)
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	for _, name := range []string{"mnt", "net"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", cmd.Process.Pid, name))
		if err != nil {
			return err
		}
		k.spaces = append(k.spaces, f)
	}
	return k.addNetwork(cmd.Process.Pid)
}

// addNetwork connects the host with the network namespace of a process. The number in the name of
// the device is a part of the addresses, so that no two clusters have the same.
func (k *Kube) addNetwork(pid int) error {
	var last error
	for n := range 256 {
		k.device = kubeDevice + strconv.Itoa(n)
		if _, err := net.InterfaceByName(k.device); err == nil {
			continue
		}
		if last = ip("link", "add", k.device, "type", "veth", "peer", "name", "eth0", "netns",
			strconv.Itoa(pid)); last == nil {
			// 198.18.0.0/15 is reserved for tests of networks; bridges have its first half.
			k.host, k.node = fmt.Sprintf("198.19.%d.1", n), fmt.Sprintf("198.19.%d.2", n)
			k.pods = fmt.Sprintf("10.88.%d.0/24", n)
			break
		}
	}
	if k.host == "" {
		return errors.Join(errors.New("no device can be made"), last)
	}
	err := errors.Join(ip("address", "add", k.host+"/30", "dev", k.device),
		ip("link", "set", "dev", k.device, "up"), ip("route", "add", k.pods, "via", k.node))
	for _, args := range [][]string{
		{"address", "add", k.node + "/30", "dev", "eth0"},
		{"link", "set", "dev", "eth0", "up"},
		{"route", "add", "default", "via", k.host},
	} {
		if err == nil {
			err = run(k.inside("ip", args...))
		}
	}
	return err
}

// inside returns a command in the namespaces.
func (k *Kube) inside(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{
		"--mount=/proc/self/fd/3", "--net=/proc/self/fd/4", "--", name,
	}, args...)...)
	cmd.ExtraFiles = k.spaces
	return cmd
}

//go:embed testdata/kube
var kubeFiles embed.FS

// writeFiles writes certificates and configurations.
func (k *Kube) writeFiles() error {
	authority, key, err := writeAuthority(k.dir)
	if err != nil {
		return err
	}
	serve, call := x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth
	for i, c := range []struct {
		name, user, group string
		usage             x509.ExtKeyUsage
	}{
		{"apiserver", "kube-apiserver", "", serve},
		{"account", "accounts", "", serve},
		{"admin", "admin", "system:masters", call},
		{"kubelet", "system:node:" + kubeNode, "system:nodes", call},
		{"kube-controller-manager", "system:kube-controller-manager", "system:masters", call},
		{"kube-scheduler", "system:kube-scheduler", "", call},
		{"kube-proxy", "system:kube-proxy", "", call},
	} {
		cert := certificate(int64(i+2), c.user)
		if c.group != "" {
			cert.Subject.Organization = []string{c.group}
		}
		cert.ExtKeyUsage = []x509.ExtKeyUsage{c.usage}
		cert.IPAddresses = []net.IP{net.ParseIP(k.node), net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1)}
		if err := writePair(k.dir, c.name+"-", cert, authority, key); err != nil {
			return err
		}
		if c.usage == call {
			if err := k.writeKubeconfig(c.name); err != nil {
				return err
			}
		}
	}
	for _, group := range k.groups() {
		if err := os.MkdirAll(group, 0o755); err != nil {
			return err
		}
	}
	kubectl := fmt.Appendf(nil, "#!/bin/sh\nexport HOME=%s\nexec %s --kubeconfig=%s \"$@\"\n",
		k.dir, filepath.Join(filepath.Dir(k.binary), "kubectl"), k.Config())
	if err := os.WriteFile(filepath.Join(k.dir, "kubectl"), kubectl, 0o700); err != nil {
		return err
	}
	all, err := template.ParseFS(kubeFiles, "testdata/kube/*")
	if err != nil {
		return err
	}
	for _, t := range all.Templates() {
		var b bytes.Buffer
		if err := t.Execute(&b, map[string]string{
			"Dir": k.dir, "Node": k.node, "Pods": k.pods, "Name": filepath.Base(k.dir), "CNI": cniDir,
			"Pause": "docker.io/" + kubePause,
		}); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(k.dir, t.Name()), b.Bytes(), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// writeKubeconfig writes a kubeconfig file for the user of a certificate. It holds the certificates
// themselves: clients watch files for changes, by goroutines that never end.
func (k *Kube) writeKubeconfig(name string) error {
	values := []any{k.node}
	for _, file := range []string{"ca.pem", name + "-cert.pem", name + "-key.pem"} {
		data, err := os.ReadFile(filepath.Join(k.dir, file))
		if err != nil {
			return err
		}
		values = append(values, base64.StdEncoding.EncodeToString(data))
	}
	return os.WriteFile(filepath.Join(k.dir, name+".kubeconfig"), fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: test
contexts: [{name: test, context: {cluster: test, user: test, namespace: default}}]
clusters:
- {name: test, cluster: {server: "https://%s:6443", certificate-authority-data: %s}}
users:
- {name: test, user: {client-certificate-data: %s, client-key-data: %s}}
`, values...), 0o600)
}

// groups returns the control groups of the kubelet's pods, one of each hierarchy.
func (k *Kube) groups() []string {
	name := filepath.Base(k.dir)
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return []string{filepath.Join("/sys/fs/cgroup", name)}
	}
	var groups []string
	hierarchies, _ := filepath.Glob("/sys/fs/cgroup/*/tasks") // the pattern is valid
	for _, tasks := range hierarchies {
		groups = append(groups, filepath.Join(filepath.Dir(tasks), name))
	}
	return groups
}

// args returns the command of a program.
func (k *Kube) args(name string) []string {
	file := func(name string) string { return filepath.Join(k.dir, name) }
	kubeconfig := "--kubeconfig=" + file(name+".kubeconfig")
	switch name {
	case "containerd":
		return []string{name, "--config", file("containerd.toml")}
	case "etcd":
		return []string{
			k.binary, name, "--data-dir", file("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		}
	case "kube-apiserver":
		return []string{
			k.binary, name, "--etcd-servers=http://127.0.0.1:2379", "--bind-address=" + k.node,
			"--advertise-address=" + k.node, "--endpoint-reconciler-type=none",
			"--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=Node,RBAC",
			"--client-ca-file=" + file("ca.pem"), "--allow-privileged=true",
			"--tls-cert-file=" + file("apiserver-cert.pem"),
			"--tls-private-key-file=" + file("apiserver-key.pem"),
			"--kubelet-client-certificate=" + file("admin-cert.pem"),
			"--kubelet-client-key=" + file("admin-key.pem"),
			"--kubelet-preferred-address-types=InternalIP",
			"--service-account-issuer=https://sandboxagent.test",
			"--service-account-signing-key-file=" + file("account-key.pem"),
			"--service-account-key-file=" + file("account-cert.pem"),
			"--enable-priority-and-fairness=true", "--audit-policy-file=" + file("audit.yaml"),
			"--audit-log-path=" + file("audit.log"),
		}
	case "kube-controller-manager":
		return []string{
			k.binary, name, kubeconfig, "--leader-elect=false", "--bind-address=127.0.0.1",
			"--root-ca-file=" + file("ca.pem"), "--terminated-pod-gc-threshold=1000",
			"--service-account-private-key-file=" + file("account-key.pem"),
		}
	case "kube-scheduler":
		return []string{k.binary, name, kubeconfig, "--leader-elect=false", "--bind-address=127.0.0.1"}
	case "kubelet":
		return []string{
			k.binary, name, kubeconfig, "--config=" + file("kubelet.yaml"), "--node-ip=" + k.node,
			"--hostname-override=" + kubeNode, "--root-dir=" + file("kubelet"),
			"--cert-dir=" + file("kubelet-pki"),
		}
	}
	return []string{k.binary, name, "--config=" + file("kube-proxy.yaml")}
}

// Start starts a program of the cluster, such as kube-apiserver, after Kill.
func (k *Kube) Start(name string) error {
	log, err := os.OpenFile(filepath.Join(k.dir, name+".log"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // the program has it open
	args := k.args(name)
	cmd := k.inside(args[0], args[1:]...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	cmd.Env = append(without(os.Environ(), "KUBE", "NOTIFY_SOCKET=", "GOMAXPROCS="), "TMPDIR="+k.dir)
	cmd.Dir, cmd.Stdout, cmd.Stderr = k.dir, log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	k.track(name, cmd)
	return nil
}

// track waits for the end of a program.
func (k *Kube) track(name string, cmd *exec.Cmd) {
	p := &kubeProgram{cmd: cmd, exited: make(chan struct{})}
	go func() {
		defer close(p.exited)
		_ = cmd.Wait() // tests kill programs
	}()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.programs[name] = p
}

// Kill ends a program of the cluster by SIGKILL.
func (k *Kube) Kill(name string) error {
	k.mu.Lock()
	p := k.programs[name]
	k.mu.Unlock()
	if p == nil {
		return fmt.Errorf("%s has not started", name)
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill %s: %w", name, err)
	}
	<-p.exited
	return nil
}

// Host is the address of this machine in the network of the cluster.
func (k *Kube) Host() string { return k.host }

// Mirror has the node pull the images of a registry, such as registry.test, from a URL.
func (k *Kube) Mirror(registry, url string) error {
	dir := filepath.Join(k.dir, "registries", registry)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	text := fmt.Appendf(nil, "server = %[1]q\n[host.%[1]q]\n", url) // early versions need a host
	return os.WriteFile(filepath.Join(dir, "hosts.toml"), text, 0o600)
}

// Audit is a file with a line for each request to the API server.
func (k *Kube) Audit() string { return filepath.Join(k.dir, "audit.log") }

// State describes the node, the pods and the last events, for a reader who looks for a failure.
func (k *Kube) State() string {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var b strings.Builder
	for _, args := range [][]string{
		{"describe", "node"},
		{"get", "pods", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp"},
	} {
		out, err := Kubectl(ctx, k.Config(), "", args...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if n := len(lines) - maxStateLines; n > 0 {
			lines = lines[n:]
		}
		fmt.Fprintf(&b, "kubectl %s:\n%s\n", strings.Join(args, " "), strings.Join(lines, "\n"))
		if err != nil {
			fmt.Fprintln(&b, err)
		}
	}
	return b.String()
}

// maxStateLines bounds each part of Kube.State.
const maxStateLines = 60

// LogTail returns the ends of all logs.
func (k *Kube) LogTail() string {
	var b strings.Builder
	logs, _ := filepath.Glob(filepath.Join(k.dir, "*.log")) // the pattern is valid
	for _, name := range logs {
		data, _ := os.ReadFile(name) // an empty one
		if name != k.Audit() {
			fmt.Fprintf(&b, "%s:\n%s\n", filepath.Base(name), data[max(0, len(data)-1500):])
		}
	}
	return b.String()
}

// load copies images of the daemon into the node.
func (k *Kube) load(ctx context.Context, from *Docker, images []string) error {
	socket := filepath.Join(k.dir, "containerd.sock")
	if err := wait(ctx, startTimeout, func() bool {
		_, err := os.Stat(socket)
		return err == nil
	}); err != nil {
		return fmt.Errorf("wait for containerd: %w\n%s", err, k.LogTail())
	}
	if err := from.Load(ctx, images...); err != nil {
		return err
	}
	slices.Sort(images)
	archive, err := call(ctx, from.client, http.MethodGet, "/images/get",
		url.Values{"names": slices.Compact(images)}, nil)
	if err != nil {
		return err
	}
	defer archive.Close() //nolint:errcheck // it was only read
	load := k.inside("ctr", "--address", socket, "--namespace=k8s.io", "images", "import", "-")
	load.Stdin = archive
	return run(load)
}

// Stop ends the programs and the pods, removes everything that they made, and fails if something is
// left. Further calls do nothing.
func (k *Kube) Stop() error {
	k.mu.Lock()
	stopped := k.stopped
	k.stopped = true
	k.mu.Unlock()
	if stopped {
		return nil
	}
	for _, f := range k.spaces {
		_ = f.Close()
	}
	err := remove(k.dir) // which kills the processes in the mount namespace, and those of pods
	if k.device != "" {
		// It vanishes with the network namespace, which may take a moment.
		err = errors.Join(err, wait(context.Background(), stopTimeout, func() bool {
			_, err := net.InterfaceByName(k.device)
			return err != nil
		}))
	}
	return err
}

// kubeVersion is the version of Kubernetes, as integration/kube/go.mod has it.
const kubeVersion = "1.34.4"

// BuildKube returns the program of integration/kube, beside which is kubectl. It builds both where
// the cache lacks them, which takes about 5 minutes. The default of cache is sandboxagent-build in
// the user's cache directory.
func BuildKube(ctx context.Context, cache string) (_ string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("build the programs of Kubernetes: %w", err)
		}
	}()
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			user = os.TempDir()
		}
		cache = filepath.Join(user, "sandboxagent-build")
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/sandboxagent/sandboxagent").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(out)), "integration", "kube")
	digest := sha256.New()
	fmt.Fprintln(digest, runtime.Version())
	for _, name := range []string{"main.go", "kubectl/main.go", "go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", err
		}
		digest.Write(data)
	}
	dir := filepath.Join(cache, fmt.Sprintf("kube-%x", digest.Sum(nil)[:8]))
	binary := filepath.Join(dir, "kube")
	if _, err := os.Stat(binary); err == nil {
		return binary, nil
	}
	made := dir + ".new"
	if err := os.RemoveAll(made); err != nil { // the rest of a build that was killed
		return "", err
	}
	const variable = "-X k8s.io/component-base/version.git"
	major, rest, _ := strings.Cut(kubeVersion, ".")
	minor, _, _ := strings.Cut(rest, ".")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", fmt.Sprintf(
		"-s -w %[1]sVersion=v%[2]s %[1]sMajor=%[3]s %[1]sMinor=%[4]s", variable, kubeVersion, major,
		minor), "-o", made+string(filepath.Separator), ".", "./kubectl")
	build.Dir = source
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if err := run(build); err != nil {
		return "", err
	}
	return binary, os.Rename(made, dir)
}
