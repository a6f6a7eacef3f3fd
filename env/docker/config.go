package docker

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/mount"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// Defaults of Config.
const (
	DefaultCPUs         = 2.0
	DefaultMemory       = 4 << 30
	DefaultPIDs         = 512
	DefaultUser         = "10001:10001"
	DefaultTTL          = 60 * time.Second
	DefaultStartTimeout = 2 * time.Minute
	DefaultWorkDir      = "/workspace"
)

const (
	// minMemory is less than what the helper and a shell need, and minPIDs what the helper needs.
	minMemory = 32 << 20
	minPIDs   = 64
	// programDir is where the helper is seen in a container.
	programDir = "/.sandboxagent"
	// homeDir is the home folder of a user who is not root.
	homeDir = "/home/sandbox"
	rootDir = "/root"
	tempDir = "/tmp"
)

// A Network says what commands can reach.
type Network string

// Networks.
const (
	NetworkNone Network = "none" // nothing but themselves
	NetworkFull Network = "full" // whatever containers of this daemon's default network reach
)

// A PullPolicy says when an image is fetched from its registry.
type PullPolicy string

// Pull policies.
const (
	PullMissing PullPolicy = "missing" // when the daemon does not have it
	PullAlways  PullPolicy = "always"  // whenever a container is made
	PullNever   PullPolicy = "never"
)

// Mount makes a folder or a file of the daemon's machine visible in the container.
type Mount struct {
	// Source and Target are absolute names, there and in the container.
	Source, Target string
	ReadOnly       bool
}

// Tmpfs is a file system in memory. It counts against the container's memory, and programs in it can be executed.
type Tmpfs struct {
	Target string
	// Size in bytes; 0 means half of the container's memory.
	Size int64
}

// Config says what container an environment gets. Its zero value is a container of the image "debian:bookworm-slim" with
// all the protection that there is: an ordinary user, a read-only root, no capabilities, no way to gain rights, Docker's own
// system call filter, no network, bounded processors, memory and processes, and nothing of the host. The working
// directory, the home folder and /tmp can be written.
type Config struct {
	// Image is the reference of an image; empty means the image that this project builds, "sandboxagent-base:latest", if
	// the daemon has it, else "debian:bookworm-slim".
	Image string
	Pull  PullPolicy // empty means PullMissing
	// Progress, if set, gets lines for people about what is being fetched. It is called from one goroutine at a time.
	Progress func(line string)
	// Platform is one of the image's, such as "linux/arm64"; empty means the daemon's own.
	Platform string
	// CPUs is how many processors there are, which may be a fraction; 0 means DefaultCPUs, or what the daemon's machine has if
	// that is less.
	CPUs float64
	// Memory in bytes, with what /tmp holds; there is no swap. 0 means DefaultMemory.
	Memory int64
	// PIDs is how many processes and threads there may be; 0 means DefaultPIDs.
	PIDs    int64
	Network Network // empty means NetworkNone
	// User is a number, or two with a colon for user and group, or "root"; empty means DefaultUser.
	User string
	// Vars are variables of every command, as "NAME=value", besides those of the image. The daemon is not told of them.
	Vars   []string
	Mounts []Mount
	Tmpfs  []Tmpfs
	// Runtime is the name of one of the daemon's runtimes, such as "runsc"; empty means its default.
	Runtime string
	// Labels of the container. Names that begin with "sandboxagent." are taken.
	Labels map[string]string
	// WorkDir is an absolute folder; empty means DefaultWorkDir. It is on a volume of the container's own.
	WorkDir string
	// TTL is how long the container outlives a client that is gone; 0 means DefaultTTL. It is rounded up to milliseconds.
	TTL time.Duration
	// StartTimeout bounds the start without the fetching of an image; 0 means DefaultStartTimeout.
	StartTimeout time.Duration
	// HelperProgram, if not the zero value, takes the place of the helper that "make build" embeds.
	HelperProgram HelperProgram
	// Session names the container, for those who look at it from outside; empty means a random name. Lower-case letters,
	// digits and hyphens.
	Session string
	// atMost says that there may be fewer CPUs.
	atMost bool
	// Note, if set, gets one line for each thing that is not as one might expect and is no error.
	Note func(line string)
}

// HelperProgram is a program that calls sandboxd.Main, static and for the platform of the image.
type HelperProgram struct {
	Path string
	// Args come before those that sandboxd.Main gets.
	Args []string
	// IfMissing uses the program only where no helper is embedded, and where it is static and for the right processor.
	IfMissing bool
}

var (
	userPattern    = lazyregexp.New(`^[0-9]{1,9}(:[0-9]{1,9})?$`)
	sessionPattern = lazyregexp.New(`^[a-z0-9][a-z0-9-]{0,62}$`)
)

// Check returns why the configuration cannot be meant, as Open would without asking the daemon: a *ConfigError, or an
// *ImageError for a bad reference.
func (c Config) Check() error {
	_, err := c.check()
	return err
}

// check returns the configuration with its defaults, or what Check returns.
func (c Config) check() (Config, error) {
	bad := func(field, format string, args ...any) (Config, error) {
		return c, &ConfigError{Field: field, Reason: fmt.Sprintf(format, args...)}
	}
	c.Pull = cmp.Or(c.Pull, PullMissing)
	c.Network = cmp.Or(c.Network, NetworkNone)
	c.atMost = c.atMost || c.CPUs == 0
	c.CPUs = cmp.Or(c.CPUs, DefaultCPUs)
	c.Memory = cmp.Or(c.Memory, DefaultMemory)
	c.PIDs = cmp.Or(c.PIDs, DefaultPIDs)
	c.User = cmp.Or(c.User, DefaultUser)
	c.WorkDir = cmp.Or(c.WorkDir, DefaultWorkDir)
	c.TTL = cmp.Or(c.TTL, DefaultTTL)
	c.StartTimeout = cmp.Or(c.StartTimeout, DefaultStartTimeout)
	if c.User == "root" {
		c.User = "0:0"
	}
	switch {
	case !slices.Contains([]PullPolicy{PullMissing, PullAlways, PullNever}, c.Pull):
		return bad("pull", "%q is none of missing, always, never", c.Pull)
	case !slices.Contains([]Network{NetworkNone, NetworkFull}, c.Network):
		return bad("network", "%q is none of none, full", c.Network)
	case !(c.CPUs >= 0.01 && c.CPUs <= 1<<20):
		return bad("cpus", "%v is no number of processors; 0.5 or 2, say", c.CPUs)
	case c.Memory < minMemory:
		return bad("memory", "%d bytes are too few; it takes %d MiB at least", c.Memory, minMemory>>20)
	case c.PIDs < minPIDs || c.PIDs > math.MaxInt32:
		return bad("pids", "%d is out of range; it takes %d processes at least", c.PIDs, minPIDs)
	case !userPattern().MatchString(c.User):
		return bad("user", "%q is neither root nor a number such as 10001 or 10001:10001; a name means something else in each image", c.User)
	case !path.IsAbs(c.WorkDir) || path.Clean(c.WorkDir) != c.WorkDir || c.WorkDir == "/":
		return bad("working directory", "%q is no absolute, clean name of a folder", c.WorkDir)
	case c.TTL < 0 || c.StartTimeout < 0:
		return bad("ttl", "a negative time")
	case c.Session != "" && !sessionPattern().MatchString(c.Session):
		return bad("session", "%q is not made of up to 63 lower-case letters, digits and hyphens", c.Session)
	}
	if !strings.Contains(c.User, ":") {
		c.User += ":" + c.User
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
			return bad("label", "%q is not free; names that begin with %q are taken", name, labelPrefix)
		}
	}
	return c, c.checkTargets()
}

// checkTargets checks the mounts and file systems in memory, which must not overlap with each other or with what a
// container has anyway.
func (c Config) checkTargets() error {
	taken := map[string]string{c.WorkDir: "the working directory", c.home(): "the home folder", programDir: "the helper"}
	add := func(field, target string) error {
		if !path.IsAbs(target) || path.Clean(target) != target || target == "/" {
			return &ConfigError{Field: field, Reason: fmt.Sprintf("%q is no absolute, clean name of a folder in the container", target)}
		}
		if target == "/proc" || target == "/sys" || strings.HasPrefix(target, "/proc/") || strings.HasPrefix(target, "/sys/") {
			return &ConfigError{Field: field, Reason: fmt.Sprintf("%s would hide what the system shows of itself", target)}
		}
		if what, ok := taken[target]; ok {
			return &ConfigError{Field: field, Reason: fmt.Sprintf("%s is %s already", target, what)}
		}
		if strings.HasPrefix(target, programDir+"/") {
			return &ConfigError{Field: field, Reason: fmt.Sprintf("%s is the helper's", programDir)}
		}
		taken[target] = "used by another " + field
		return nil
	}
	for _, t := range c.Tmpfs {
		if t.Size < 0 {
			return &ConfigError{Field: "tmpfs", Reason: fmt.Sprintf("%s has a negative size", t.Target)}
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
	}
	return nil
}

// forbidden are folders of the daemon's machine that give whoever can read or write them the machine.
var forbidden = []string{"/", "/proc", "/sys", "/dev", "/etc", "/root", "/boot", "/run", "/var", "/var/run", "/var/lib", "/home", "/usr", "/bin", "/sbin", "/lib", "/lib64"}

// forbiddenBelow are folders of which nothing at all is to be seen.
var forbiddenBelow = []string{
	"/proc", "/sys", "/dev", "/boot", "/etc/ssh", "/root/.ssh", "/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet",
	"/run/containerd", "/var/run/containerd", "/run/docker", "/var/run/docker",
}

// checkSource refuses mounts that would undo the protection.
func checkSource(source string) error {
	bad := func(reason string) error {
		return &ConfigError{Field: "mount", Reason: fmt.Sprintf("%q %s", source, reason)}
	}
	if !path.IsAbs(source) || path.Clean(source) != source {
		return bad("is no absolute, clean name on the daemon's machine")
	}
	if slices.Contains(forbidden, source) || slices.ContainsFunc(forbiddenBelow, func(dir string) bool { return within(source, dir) }) {
		return bad("would show the sandbox the system of the daemon's machine; name a folder of your own")
	}
	if base := path.Base(source); strings.HasSuffix(base, ".sock") || base == "docker" && strings.HasPrefix(source, "/run") {
		return bad("is a socket: whoever can talk to a daemon can leave the sandbox")
	}
	return nil
}

// platform returns the platform for the daemon; nil means its own.
func (c Config) platform() (*ocispec.Platform, error) {
	if c.Platform == "" {
		return nil, nil
	}
	parts := strings.Split(c.Platform, "/")
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		return nil, &ConfigError{Field: "platform", Reason: fmt.Sprintf("%q is not of the form linux/amd64", c.Platform)}
	}
	p := &ocispec.Platform{OS: parts[0], Architecture: parts[1]}
	if len(parts) == 3 {
		p.Variant = parts[2]
	}
	if p.OS != "linux" {
		return nil, &ConfigError{Field: "platform", Reason: fmt.Sprintf("%q: the environment is Linux", c.Platform)}
	}
	return p, nil
}

// ids returns the numbers of user and group.
func (c Config) ids() (uid, gid int) {
	u, g, _ := strings.Cut(c.User, ":")
	uid, _ = strconv.Atoi(u) // the pattern says that they are numbers
	gid, _ = strconv.Atoi(g)
	return uid, gid
}

// home is the home folder of the user.
func (c Config) home() string {
	if uid, _ := c.ids(); uid == 0 {
		return rootDir
	}
	return homeDir
}

// tmpfs returns the file systems in memory as the daemon wants them. The owner is told for those that hide a folder of
// the image: they take over its mode, which may let nobody else write.
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

// volumes are those that go with the container.
func (c Config) volumes() []mount.Mount {
	labels := &mount.VolumeOptions{Labels: map[string]string{labelKind: kindVolume, labelSession: c.Session}}
	return []mount.Mount{
		{Type: mount.TypeVolume, Target: c.WorkDir, VolumeOptions: labels},
		{Type: mount.TypeVolume, Target: c.home(), VolumeOptions: labels},
	}
}

// binds returns the caller's mounts as the daemon wants them.
func (c Config) binds() []mount.Mount {
	var list []mount.Mount
	for _, m := range c.Mounts {
		list = append(list, mount.Mount{
			Type: mount.TypeBind, Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly,
			BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate},
		})
	}
	return list
}
