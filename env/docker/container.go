package docker

import (
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/go-units"
)

const (
	// socketName is where the helper is found by clients that come back. Only processes of the container's own network
	// can knock there.
	socketName = "@sandboxagent"
)

// command is what runs as the first process of the container.
func (c Config) command(p *program) []string {
	argv := append([]string{programDir + "/" + programName}, p.args...)
	return append(argv, "serve", "--socket", socketName, "--ttl", c.TTL.String())
}

// dialCommand connects to the helper in a container that runs.
func dialCommand(p *program) []string {
	argv := append([]string{programDir + "/" + programName}, p.args...)
	return append(argv, "dial", "--socket", socketName, "--pid", "1")
}

// spec is a container as the daemon wants it.
type spec struct {
	config *container.Config
	host   *container.HostConfig
	net    *network.NetworkingConfig
}

// spec returns the container that runs argv in an image.
func (c Config) spec(imageID string, argv []string, extra ...mount.Mount) spec {
	stop := 1
	s := spec{
		config: &container.Config{
			Image:      imageID,
			User:       c.User,
			Hostname:   "sandbox",
			Entrypoint: argv,
			Cmd:        []string{},
			Labels:     c.labels(kindSandbox, time.Now()),
			WorkingDir: "/",
			// The helper learns that the client is gone from the end of its input.
			OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
			StopSignal:  "SIGTERM",
			StopTimeout: &stop,
		},
		host: &container.HostConfig{
			AutoRemove:     true,
			ReadonlyRootfs: true,
			CapDrop:        []string{"ALL"},
			SecurityOpt:    []string{"no-new-privileges:true"},
			NetworkMode:    "none",
			IpcMode:        "private",
			CgroupnsMode:   "private",
			// What is said on the stream is of no use in a log, and would fill the disk.
			LogConfig:   container.LogConfig{Type: "none"},
			OomScoreAdj: 500,
			Tmpfs:       c.tmpfs(),
			Mounts:      slices.Concat(c.volumes(), c.binds(), extra),
			Runtime:     c.Runtime,
			Resources: container.Resources{
				NanoCPUs:   int64(c.CPUs * 1e9),
				Memory:     c.Memory,
				MemorySwap: c.Memory,
				PidsLimit:  &c.PIDs,
				// No core files. The rest is the daemon's, which may not be able to raise its own.
				Ulimits: []*units.Ulimit{{Name: "core"}},
			},
		},
		net: &network.NetworkingConfig{},
	}
	if c.Network == NetworkFull {
		s.host.NetworkMode = "default"
	}
	return s
}

// helperMount shows the volume with the program.
func helperMount(p *program) mount.Mount {
	return mount.Mount{
		Type: mount.TypeVolume, Source: p.volume(), Target: programDir, ReadOnly: true,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true},
	}
}

// vars returns the variables of every command: the image's, those of the user, and the caller's.
func (c Config) vars(found image.InspectResponse) []string {
	name := "sandbox"
	if uid, _ := c.ids(); uid == 0 {
		name = "root"
	}
	vars := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	if found.Config != nil {
		vars = append(vars, found.Config.Env...)
	}
	vars = append(vars, "HOME="+c.home(), "USER="+name, "LOGNAME="+name)
	if !hasVar(vars, "LANG") {
		vars = append(vars, "LANG=C.UTF-8")
	}
	return append(vars, c.Vars...)
}

func hasVar(vars []string, name string) bool {
	for _, v := range vars {
		if strings.HasPrefix(v, name+"=") {
			return true
		}
	}
	return false
}
