package docker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/mount"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// Defaults of Config.
const (
	DefaultCPUs    = 2.0
	DefaultMemory  = 4 << 30
	DefaultPIDs    = 512
	DefaultUser    = "10001:10001"
	DefaultWorkDir = "/workspace"
)

const (
	// minMemory and minPIDs are the least that a helper and a shell need.
	minMemory = 32 << 20
	minPIDs   = 64
	// programDir is the mount point of the helper's volume.
	programDir = "/.sandboxagent"
	// homeDir is the home directory of users other than root.
	homeDir = "/home/sandbox"
	rootDir = "/root"
	tempDir = "/tmp"
)

// A Network is the network that commands can use.
type Network string

// Networks.
const (
	NetworkNone Network = "none" // loopback only
	NetworkFull Network = "full" // the daemon's default network
)

// A PullPolicy determines when an image is pulled.
type PullPolicy string

// Pull policies.
const (
	PullMissing PullPolicy = "missing" // when the daemon lacks the image
	PullAlways  PullPolicy = "always"  // for each container
	PullNever   PullPolicy = "never"
)

// Mount mounts a directory or file of the daemon's machine into the container.
type Mount struct {
	// Source and Target are absolute paths, on the daemon's machine and in the container.
	Source, Target string
	ReadOnly       bool
}

// Tmpfs is a file system in memory. It counts against Config.Memory, and programs in it can be
// executed.
type Tmpfs struct {
	Target string
	// Size in bytes; 0 means half of Config.Memory.
	Size int64
}

// Config describes the container of an environment. The zero value is a container with the least
// privileges: an ordinary user, a read-only root, no capabilities, no_new_privs, Docker's system
// call filter, no network, limited CPUs, memory and processes, and nothing of the host. The working
// directory, the home directory and /tmp are writable.
type Config struct {
	// Options apply to all backends. Vars come after those of the image, and the daemon does not see
	// them. StartTimeout does not include a pull.
	remote.Options

	// Image is the reference of an image. The default is "sandboxagent-base:latest" if the daemon has
	// it, else "debian:bookworm-slim".
	Image string
	Pull  PullPolicy // default PullMissing
	// Progress, if set, gets lines about the progress of a pull. Calls do not overlap.
	Progress func(line string)
	// Platform is a platform of the image, such as "linux/arm64"; the default is the daemon's.
	Platform string
	// CPUs is the number of processors, which may be a fraction. The default is DefaultCPUs, or those
	// of the daemon's machine if they are fewer.
	CPUs float64
	// Memory in bytes, including /tmp; swap is off. 0 means DefaultMemory.
	Memory int64
	// PIDs is the maximum number of processes and threads; 0 means DefaultPIDs.
	PIDs    int64
	Network Network // default NetworkNone
	// User is "UID", "UID:GID" or "root"; the default is DefaultUser.
	User   string
	Mounts []Mount
	Tmpfs  []Tmpfs
	// Runtime is the name of a runtime of the daemon, such as "runsc"; the default is the daemon's.
	Runtime string
	// Labels of the container. Names with the prefix "sandboxagent." are reserved.
	Labels map[string]string
	// WorkDir is an absolute directory on a volume of the container; the default is DefaultWorkDir.
	// If the image has it, the volume starts with its content, which belongs to the image's owners.
	WorkDir string
	// OwnWorkDir makes User the owner of WorkDir with all its content, and the directory safe for
	// git, so that commands can work in a repository of the image. The image must have the directory.
	// The first environment of an image creates a layer with a copy of it, which the daemon keeps.
	OwnWorkDir bool
	// Fill, if set, makes the working directory, volumes of the image and Mounts read-only; mounts
	// below the source of one of Mounts are left out. Open calls it with an environment in another
	// container, without network and Mounts, which has the same working directory and can write there.
	// Its duration does not count as StartTimeout, and Open returns its error.
	Fill func(ctx context.Context, e env.Environment) error
	// WritableRoot lets commands write wherever User may, instead of the listed directories only.
	// Nothing of it outlives the container.
	WritableRoot bool

	// atMost permits fewer CPUs.
	atMost bool
	// workFrom is the container that has filled the working directory; empty if commands can write it.
	workFrom string
}

var userPattern = lazyregexp.New(`^[0-9]{1,9}(:[0-9]{1,9})?$`)

// Validate reports the first invalid field of c that can be found without the daemon: a
// *ConfigError, or an *ImageError for a bad reference.
func (c Config) Validate() error {
	_, err := c.check()
	return err
}

// check validates the configuration and returns it with its defaults.
func (c Config) check() (Config, error) {
	bad := func(field, format string, args ...any) (Config, error) {
		return c, badConfig(field, format, args...)
	}
	var err error
	if c.Options, err = c.Complete(backend); err != nil {
		return c, err
	}
	c.Pull = cmp.Or(c.Pull, PullMissing)
	c.Network = cmp.Or(c.Network, NetworkNone)
	c.atMost = c.atMost || c.CPUs == 0
	c.CPUs = cmp.Or(c.CPUs, DefaultCPUs)
	c.Memory = cmp.Or(c.Memory, DefaultMemory)
	c.PIDs = cmp.Or(c.PIDs, DefaultPIDs)
	c.User = cmp.Or(c.User, DefaultUser)
	c.WorkDir = cmp.Or(c.WorkDir, DefaultWorkDir)
	switch {
	case !slices.Contains([]PullPolicy{PullMissing, PullAlways, PullNever}, c.Pull):
		return bad("pull", "%q is not one of missing, always, never", c.Pull)
	case !slices.Contains([]Network{NetworkNone, NetworkFull}, c.Network):
		return bad("network", "%q is not one of none, full", c.Network)
	case !(c.CPUs >= 0.01 && c.CPUs <= 1<<20):
		return bad("cpus", "%v is not a number of processors such as 0.5 or 2", c.CPUs)
	case c.Memory < minMemory:
		return bad("memory", "%d bytes are too few; it takes %d MiB at least", c.Memory, minMemory>>20)
	case c.PIDs < minPIDs || c.PIDs > math.MaxInt32:
		return bad("pids", "%d is out of range; it takes %d processes at least", c.PIDs, minPIDs)
	case !path.IsAbs(c.WorkDir) || path.Clean(c.WorkDir) != c.WorkDir || c.WorkDir == "/":
		return bad("working directory", "%q is not an absolute, clean directory", c.WorkDir)
	}
	if c.User, err = parseUser(c.User); err != nil {
		return bad("user", "%v", err)
	}
	if _, err := c.platform(); err != nil {
		return c, err
	}
	if c.Image != "" {
		if _, err := reference.ParseDockerRef(c.Image); err != nil {
			return c, &ImageError{Reference: c.Image, Problem: ImageBadReference, Err: err}
		}
	}
	for name := range maps.Keys(c.Labels) {
		if strings.HasPrefix(name, labelPrefix) || name == "" {
			return bad("label", "%q is taken; names with the prefix %q are reserved", name, labelPrefix)
		}
	}
	return c, c.checkTargets()
}

// checkTargets checks mounts and tmpfs, which must not cover each other or the directories of every
// container.
func (c Config) checkTargets() error {
	taken := map[string]string{
		c.WorkDir: "the working directory", c.home(): "the home directory", programDir: "the helper",
	}
	add := func(field, target string) error {
		if !path.IsAbs(target) || path.Clean(target) != target || target == "/" {
			return badConfig(field, "%q is not an absolute, clean path in the container", target)
		}
		if within(target, "/proc") || within(target, "/sys") {
			return badConfig(field, "%s would cover a file system of the kernel", target)
		}
		if use, ok := taken[target]; ok {
			return badConfig(field, "%s is %s already", target, use)
		}
		if strings.HasPrefix(target, programDir+"/") {
			return badConfig(field, "%s is the helper's", programDir)
		}
		taken[target] = "used by another " + field
		return nil
	}
	for _, t := range c.Tmpfs {
		if t.Size < 0 {
			return badConfig("tmpfs", "%s has a negative size", t.Target)
		}
		if err := add("tmpfs", t.Target); err != nil {
			return err
		}
	}
	for _, m := range c.Mounts {
		if err := checkSource(m.Source); err != nil {
			return err
		}
		if err := add("mount", m.Target); err != nil {
			return err
		}
		if c.Fill != nil && within(m.Target, c.WorkDir) {
			return badConfig("mount", "%s is in the working directory, which is read-only, so that "+
				"nothing can be mounted there; mount it elsewhere", m.Target)
		}
	}
	return nil
}

// forbidden are directories that give control of the daemon's machine.
var forbidden = []string{
	"/", "/proc", "/sys", "/dev", "/etc", "/root", "/boot", "/run", "/var", "/var/run", "/var/lib",
	"/home", "/usr", "/bin", "/sbin", "/lib", "/lib64",
}

// forbiddenBelow are directories of which no part may be mounted.
var forbiddenBelow = []string{
	"/proc", "/sys", "/dev", "/boot", "/etc/ssh", "/root/.ssh", "/var/lib/docker",
	"/var/lib/containerd", "/var/lib/kubelet",
	"/run/containerd", "/var/run/containerd", "/run/docker", "/var/run/docker",
}

// checkSource rejects mounts that would undo the isolation.
func checkSource(source string) error {
	bad := func(reason string) error {
		return badConfig("mount", "%q %s", source, reason)
	}
	if !path.IsAbs(source) || path.Clean(source) != source {
		return bad("is not an absolute, clean path on the daemon's machine")
	}
	below := func(dir string) bool { return within(source, dir) }
	if slices.Contains(forbidden, source) || slices.ContainsFunc(forbiddenBelow, below) {
		return bad("would expose the daemon's machine to the sandbox; mount a directory of your own")
	}
	if base := path.Base(source); strings.HasSuffix(base, ".sock") || base == "docker" &&
		strings.HasPrefix(source, "/run") {
		return bad("is a socket, which could lead out of the sandbox")
	}
	return nil
}

// platform returns the platform for the daemon; nil means the daemon's.
func (c Config) platform() (*ocispec.Platform, error) {
	if c.Platform == "" {
		return nil, nil
	}
	parts := strings.Split(c.Platform, "/")
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		return nil, badConfig("platform", "%q is not of the form linux/amd64", c.Platform)
	}
	p := &ocispec.Platform{OS: parts[0], Architecture: parts[1]}
	if len(parts) == 3 {
		p.Variant = parts[2]
	}
	if p.OS != "linux" {
		return nil, badConfig("platform", "%q: the environment is Linux", c.Platform)
	}
	return p, nil
}

// parseUser returns a user in the form "UID:GID".
func parseUser(user string) (string, error) {
	switch {
	case user == "root":
		return "0:0", nil
	case !userPattern().MatchString(user):
		return "", fmt.Errorf("%q is neither root nor a number such as 10001 or 10001:10001; names "+
			"differ between images", user)
	case !strings.Contains(user, ":"):
		return user + ":" + user, nil
	}
	return user, nil
}

// ids returns the IDs of user and group.
func (c Config) ids() (uid, gid int) {
	u, g, _ := strings.Cut(c.User, ":")
	uid, _ = strconv.Atoi(u) // matches userPattern
	gid, _ = strconv.Atoi(g)
	return uid, gid
}

// home returns the home directory of the user.
func (c Config) home() string {
	if uid, _ := c.ids(); uid == 0 {
		return rootDir
	}
	return homeDir
}

// tmpfs returns the tmpfs for the daemon. Each has an owner, since one that covers a directory of
// the image inherits its mode, which may exclude other users.
func (c Config) tmpfs() map[string]string {
	uid, gid := c.ids()
	options := func(size int64) string {
		return fmt.Sprintf("rw,exec,nosuid,nodev,mode=1777,uid=%d,gid=%d,size=%d", uid, gid, size)
	}
	all := map[string]string{tempDir: options(c.Memory / 2)}
	for _, t := range c.Tmpfs {
		all[t.Target] = options(cmp.Or(t.Size, c.Memory/2))
	}
	return all
}

// volumes returns the volumes of the container.
func (c Config) volumes() []mount.Mount {
	labels := &mount.VolumeOptions{
		Labels: map[string]string{labelKind: kindVolume, labelSession: c.Session},
	}
	home := mount.Mount{Type: mount.TypeVolume, Target: c.home(), VolumeOptions: labels}
	if c.workFrom != "" {
		return []mount.Mount{home}
	}
	return []mount.Mount{{Type: mount.TypeVolume, Target: c.WorkDir, VolumeOptions: labels}, home}
}

// binds returns the configured mounts for the daemon.
func (c Config) binds() []mount.Mount {
	var list []mount.Mount
	for _, m := range c.Mounts {
		list = append(list, mount.Mount{
			Type: mount.TypeBind, Source: m.Source, Target: m.Target,
			ReadOnly: m.ReadOnly || c.workFrom != "",
			BindOptions: &mount.BindOptions{
				Propagation: mount.PropagationRPrivate,
				// Old daemons and kernels leave mounts below the source writable.
				NonRecursive: c.workFrom != "",
			},
		})
	}
	return list
}
