package k8s

import (
	"cmp"
	"context"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// Defaults of Config.
const (
	DefaultImage        = "debian:bookworm-slim"
	DefaultCPUs         = 2.0
	DefaultMemory       = 4 << 30
	DefaultDisk         = 8 << 30
	DefaultUser         = "10001:10001"
	DefaultWorkDir      = "/workspace"
	DefaultDeadline     = 24 * time.Hour
	DefaultStartTimeout = 5 * time.Minute
)

const (
	// backend is the name of this package in env.Info and in errors.
	backend = "k8s"
	// minMemory is the least that a helper and a shell need.
	minMemory = 64 << 20
	minDisk   = 64 << 20
	// programDir is the mount point of the helper's volume.
	programDir = "/.sandboxagent"
	homeDir    = "/home/sandbox"
	tempDir    = "/tmp"
)

// A Network is the network that commands can use.
type Network string

// Networks.
const (
	NetworkNone Network = "none" // denied by a policy, if the cluster enforces policies
	NetworkFull Network = "full" // the cluster's
)

// A PullPolicy determines when a node pulls an image.
type PullPolicy string

// Pull policies.
const (
	PullMissing PullPolicy = "missing" // when the node lacks the image
	PullAlways  PullPolicy = "always"
	PullNever   PullPolicy = "never"
)

// Config describes the pod of an environment. The zero value is a pod with the least privileges:
// the Pod Security Standard "restricted" with a read-only root, no token of a service account, no
// network if the cluster enforces policies, and limited CPUs, memory and disk. The working
// directory, the home directory and /tmp are writable.
type Config struct {
	// Options apply to all backends. StartTimeout includes scheduling and the pull of images; its
	// default is DefaultStartTimeout.
	remote.Options

	// Image is the reference of an image; default DefaultImage.
	Image string
	Pull  PullPolicy // default PullMissing
	// HelperImage is the reference of an image with the program sandboxd, such as that of "image build
	// helper". By default an init container of Image receives the helper through its shell, so an
	// Image without sh, chmod, head, mkdir, mv, sleep, uname and wc needs it.
	HelperImage string
	// CPUs is a number of processors, Memory and Disk are bytes. The pod requests them, and may use no
	// more. Disk bounds its volumes and logs together.
	CPUs   float64
	Memory int64
	Disk   int64
	// Network is the network of commands. With NetworkNone a NetworkPolicy denies all traffic, and the
	// helper probes whether the cluster enforces it, which Info reports. RequireNoNetwork makes that a
	// condition of Open.
	Network          Network
	RequireNoNetwork bool
	// WaitForQuota is how long Open waits for room in a quota of the namespace, beside StartTimeout;
	// then, and at once without, the error is ErrQuota. That of a pod which is larger than the whole
	// quota is the cluster's.
	WaitForQuota time.Duration
	// User is "UID" or "UID:GID", not root; the default is DefaultUser.
	User string
	// WorkDir is an absolute directory on a volume of the pod; the default is DefaultWorkDir.
	WorkDir string
	// Fill, if set, makes the working directory and the volumes of Template read-only. Open calls it
	// with an environment in an init container, which has the same working directory and can write
	// there. Its duration does not count as StartTimeout, and Open returns its error.
	Fill func(ctx context.Context, e env.Environment) error
	// RuntimeClass is the name of a runtime class of the cluster, such as "gvisor".
	RuntimeClass string
	// Labels of the pod. Names with the prefix "sandboxagent/" are reserved.
	Labels map[string]string
	// Parent is a pod in the same namespace: the cluster deletes the environment with it. May be zero.
	Parent PodID
	// Deadline bounds the life of the pod; default DefaultDeadline. It is the last resort, for a
	// helper that has lost its way.
	Deadline time.Duration
	// Template is YAML with more fields of the pod; see docs/k8s.md. A field that could weaken the
	// profile is an error that names it, unless AllowFields has it or a field above it, such as
	// "spec.hostAliases".
	Template    []byte
	AllowFields []string
}

// PodID names a pod.
type PodID struct{ Name, UID string }

var (
	userPattern  = lazyregexp.New(`^[0-9]{1,10}(:[0-9]{1,10})?$`)
	fieldPattern = lazyregexp.New(`^(metadata|spec)(\.[A-Za-z]+)+$`)
)

// Validate reports the first invalid field of c that can be found without the cluster: a
// *ConfigError.
func (c Config) Validate() error {
	_, err := c.check()
	return err
}

// check validates the configuration and returns it with its defaults.
func (c Config) check() (Config, error) {
	bad := func(field, format string, args ...any) (Config, error) {
		return c, badConfig(field, format, args...)
	}
	c.StartTimeout = cmp.Or(c.StartTimeout, DefaultStartTimeout)
	var err error
	if c.Options, err = c.Complete(backend); err != nil {
		return c, err
	}
	c.Image = cmp.Or(c.Image, DefaultImage)
	c.Pull = cmp.Or(c.Pull, PullMissing)
	c.Network = cmp.Or(c.Network, NetworkNone)
	c.CPUs = cmp.Or(c.CPUs, DefaultCPUs)
	c.Memory = cmp.Or(c.Memory, DefaultMemory)
	c.Disk = cmp.Or(c.Disk, DefaultDisk)
	c.User = cmp.Or(c.User, DefaultUser)
	c.WorkDir = cmp.Or(c.WorkDir, DefaultWorkDir)
	c.Deadline = cmp.Or(c.Deadline, DefaultDeadline)
	switch {
	case !slices.Contains([]PullPolicy{PullMissing, PullAlways, PullNever}, c.Pull):
		return bad("pull", "%q is not one of missing, always, never", c.Pull)
	case !slices.Contains([]Network{NetworkNone, NetworkFull}, c.Network):
		return bad("network", "%q is not one of none, full", c.Network)
	case c.RequireNoNetwork && c.Network != NetworkNone:
		return bad("enforce", "no-network excludes the network %s", c.Network)
	case !(c.CPUs >= 0.01 && c.CPUs <= 1<<20):
		return bad("cpus", "%v is not a number of processors such as 0.5 or 2", c.CPUs)
	case c.Memory < minMemory:
		return bad("memory", "%d bytes are too few; it takes %d MiB at least", c.Memory, minMemory>>20)
	case c.Disk < minDisk:
		return bad("disk", "%d bytes are too few; it takes %d MiB at least", c.Disk, minDisk>>20)
	case !path.IsAbs(c.WorkDir) || path.Clean(c.WorkDir) != c.WorkDir || c.WorkDir == "/":
		return bad("working directory", "%q is not an absolute, clean directory", c.WorkDir)
	case slices.ContainsFunc(reserved, func(dir string) bool {
		return c.WorkDir == dir || strings.HasPrefix(c.WorkDir, dir+"/")
	}) || c.WorkDir == homeDir || c.WorkDir == tempDir || strings.Contains(c.WorkDir, ":"):
		return bad("working directory", "%s cannot be one", c.WorkDir)
	case c.Network == NetworkNone && slices.ContainsFunc(c.Vars, isOfProbe):
		return bad("vars", "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are for the probe of "+
			"the network; commands can set them")
	case c.Deadline < time.Second:
		return bad("deadline", "%s is less than a second", c.Deadline)
	}
	if !userPattern().MatchString(c.User) {
		return bad("user", "%q is not of the form UID or UID:GID", c.User)
	}
	if uid, gid := c.ids(); uid == 0 || uid > math.MaxInt32 || gid > math.MaxInt32 {
		return bad("user", "%q: pods do not run as root, and IDs end at %d", c.User, math.MaxInt32)
	}
	for field, ref := range map[string]string{"image": c.Image, "helper image": c.HelperImage} {
		if _, err := reference.ParseDockerRef(ref); err != nil && ref != "" {
			return bad(field, "%q: %v", ref, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Labels)) {
		if strings.HasPrefix(name, labelPrefix) || name == labelManager {
			return bad("label", "%q is taken; names with the prefix %q are reserved", name, labelPrefix)
		}
		problems := slices.Concat(content.IsLabelKey(name), content.IsLabelValue(c.Labels[name]))
		if len(problems) > 0 {
			return bad("label", "%s=%s: %s", name, c.Labels[name], strings.Join(problems, "; "))
		}
		if isStrong(name, c.Labels[name]) && !allows(c.AllowFields, "metadata.labels") {
			return c, podFieldError("label", "metadata.labels "+name)
		}
	}
	for _, field := range c.AllowFields {
		if !fieldPattern().MatchString(field) {
			return bad("allow-pod-field", "%q is not a field such as spec.hostNetwork", field)
		}
	}
	_, err = c.template()
	return c, err
}

// reserved are directories in which no working directory can be.
var reserved = []string{programDir, "/proc", "/sys", "/dev", "/etc"}

// isOfProbe reports whether a variable is one that the probe of the network reads.
func isOfProbe(v string) bool {
	return strings.HasPrefix(v, "KUBERNETES_SERVICE_HOST=") ||
		strings.HasPrefix(v, "KUBERNETES_SERVICE_PORT=")
}

// ids returns the numbers of User.
func (c Config) ids() (uid, gid int64) {
	u, g, ok := strings.Cut(c.User, ":")
	uid, _ = strconv.ParseInt(u, 10, 64) // the pattern matches numbers
	if gid = uid; ok {
		gid, _ = strconv.ParseInt(g, 10, 64)
	}
	return uid, gid
}

// vars returns the environment variables of every command beside those of the image.
func (c Config) vars() []string {
	return append([]string{"HOME=" + homeDir, "USER=sandbox", "LOGNAME=sandbox", "LANG=C.UTF-8"},
		c.Vars...)
}
