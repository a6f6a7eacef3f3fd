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

	"github.com/sandboxagent/sandboxagent/env/remote"
)

// socketName is the abstract socket of the helper, for clients that reconnect. Only processes in
// the container's network namespace can connect.
const socketName = "@sandboxagent"

// spec is the daemon's description of a container.
type spec struct {
	config *container.Config
	host   *container.HostConfig
	net    *network.NetworkingConfig
}

// spec describes a container that runs argv in an image.
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
			// The helper reads EOF when the client disconnects.
			OpenStdin: true, StdinOnce: true, AttachStdin: true, AttachStdout: true, AttachStderr: true,
			Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
			StopSignal:  "SIGTERM",
			StopTimeout: &stop,
		},
		host: &container.HostConfig{
			AutoRemove:     true,
			ReadonlyRootfs: !c.WritableRoot,
			CapDrop:        []string{"ALL"},
			SecurityOpt:    []string{"no-new-privileges:true"},
			NetworkMode:    "none",
			IpcMode:        "private",
			CgroupnsMode:   "private",
			// The stream is a protocol; a log of it would fill the disk.
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
				// No core files. The daemon may not be able to raise other limits.
				Ulimits: []*units.Ulimit{{Name: "core"}},
			},
		},
		net: &network.NetworkingConfig{},
	}
	if c.Network == NetworkFull {
		s.host.NetworkMode = "default"
	}
	if c.workFrom != "" {
		s.host.VolumesFrom = []string{c.workFrom + ":ro"} // Mounts cover all but those of the image
	}
	return s
}

// helperMount returns the read-only mount of the helper's volume.
func helperMount(p *remote.Program) mount.Mount {
	return mount.Mount{
		Type: mount.TypeVolume, Source: volumeName(p), Target: programDir, ReadOnly: true,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true},
	}
}

// vars returns the environment variables of every command: the image's, the user's and the
// caller's.
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
