package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/docker/go-units"
	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// containerFlags are the flags that only an environment in a container has a use for.
func containerFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "image", Usage: "the `IMAGE` of the container (default: the one that \"image build base\" builds, else debian:bookworm-slim)", EnvVars: variable("image")},
		&cli.StringFlag{Name: "pull", Usage: "when to fetch the image: `WHEN` is missing, always or never", DefaultText: "missing", EnvVars: variable("pull")},
		&cli.StringFlag{Name: "platform", Usage: "the `PLATFORM` of the image, such as linux/arm64", DefaultText: "the daemon's", EnvVars: variable("platform")},
		&cli.Float64Flag{Name: "cpus", Usage: "`NUMBER` of processors", DefaultText: fmt.Sprint(docker.DefaultCPUs), EnvVars: variable("cpus")},
		&cli.StringFlag{Name: "memory", Usage: "`SIZE` of the memory, such as 4GiB", DefaultText: units.BytesSize(docker.DefaultMemory), EnvVars: variable("memory")},
		&cli.Int64Flag{Name: "pids", Usage: "`NUMBER` of processes and threads", DefaultText: fmt.Sprint(docker.DefaultPIDs), EnvVars: variable("pids")},
		&cli.StringFlag{Name: "user", Usage: "run as `UID[:GID]` or root", DefaultText: docker.DefaultUser, EnvVars: variable("user")},
		&cli.StringSliceFlag{Name: "mount", Usage: "show a folder of the host, `SOURCE:TARGET[:ro]`; may be repeated", EnvVars: variable("mount")},
		&cli.StringSliceFlag{Name: "tmpfs", Usage: "a folder in memory, `TARGET[:SIZE]`; may be repeated", EnvVars: variable("tmpfs")},
		&cli.StringSliceFlag{Name: "label", Usage: "a label of the container, `NAME=VALUE`; may be repeated", EnvVars: variable("label")},
		&cli.StringFlag{Name: "runtime", Usage: "the `NAME` of a runtime that the daemon knows, such as runsc", EnvVars: variable("runtime")},
		&cli.StringSliceFlag{Name: "upload-ignored", Usage: "upload files too that git ignores, those that match `PATTERN`; may be repeated", EnvVars: variable("upload-ignored")},
	}
}

// networkFlags are the flags of environments that can do without a network.
func networkFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "network", Usage: "what commands reach: `NETWORK` is none or full", DefaultText: "none", EnvVars: variable("network")},
	}
}

// remoteFlags are the flags of environments that a helper serves elsewhere.
func remoteFlags() []cli.Flag {
	return []cli.Flag{
		&cli.DurationFlag{Name: "ttl", Usage: "how long a container, or what runs on a host, outlives this program when that is killed, a `DURATION`", DefaultText: docker.DefaultTTL.String(), EnvVars: variable("ttl")},
		&cli.BoolFlag{Name: "keep", DisableDefaultText: true, Usage: "keep the environment in the end, until it was without a client for the time of --ttl; env attach leads back", EnvVars: variable("keep")},
		&cli.StringFlag{Name: "helper", Usage: "whether the helper runs there: `MODE` is auto, require or off", DefaultText: "auto", EnvVars: variable("helper")},
	}
}

// readRemoteFlags reads the remoteFlags.
func readRemoteFlags(c *cli.Context) (remoteOptions, error) {
	o := remoteOptions{ttl: c.Duration("ttl"), helper: c.String("helper")}
	switch {
	case c.IsSet("ttl") && o.ttl == 0:
		return o, usagef("--ttl is 0; leave it out for the default")
	}
	return o, nil
}

// uploadFlags are the flags of what goes into an environment, and out of it, besides the working folder.
func uploadFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "upload", Usage: "copy a file, or what is in a folder, into the environment first, `SOURCE[:TARGET]`, into the folder TARGET; may be repeated", EnvVars: variable("upload")},
		&cli.StringSliceFlag{Name: "download", Usage: "copy a file or folder out of the environment in the end, `SOURCE[:TARGET]`, into the folder TARGET; may be repeated", EnvVars: variable("download")},
	}
}

// readContainerFlags reads the containerFlags.
func readContainerFlags(c *cli.Context) (cfg docker.Config, err error) {
	cfg = docker.Config{
		Image: c.String("image"), Pull: docker.PullPolicy(c.String("pull")), Platform: c.String("platform"), CPUs: c.Float64("cpus"),
		PIDs: c.Int64("pids"), Network: docker.Network(c.String("network")), User: c.String("user"), Runtime: c.String("runtime"),
	}
	for _, name := range []string{"cpus", "pids"} {
		if c.IsSet(name) && c.Float64(name) == 0 && c.Int64(name) == 0 {
			return cfg, usagef("--%s is 0; leave it out for the default", name)
		}
	}
	if cfg.Memory, err = readSize("memory", c.String("memory")); err != nil {
		return cfg, err
	}
	for _, m := range c.StringSlice("mount") {
		mount, err := readMount(m)
		if err != nil {
			return cfg, err
		}
		cfg.Mounts = append(cfg.Mounts, mount)
	}
	for _, t := range c.StringSlice("tmpfs") {
		target, text, _ := strings.Cut(t, ":")
		size, err := readSize("tmpfs", text)
		if err != nil {
			return cfg, err
		}
		cfg.Tmpfs = append(cfg.Tmpfs, docker.Tmpfs{Target: target, Size: size})
	}
	for _, l := range c.StringSlice("label") {
		name, value, _ := strings.Cut(l, "=")
		if cfg.Labels == nil {
			cfg.Labels = make(map[string]string)
		}
		cfg.Labels[name] = value
	}
	return cfg, nil
}

// readSize reads a number of bytes; an empty text is 0.
func readSize(flag, text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	size, err := units.RAMInBytes(text)
	if err != nil || size <= 0 {
		return 0, usagef("--%s: %q is no size such as 512MiB or 4GiB", flag, text)
	}
	return size, nil
}

// readMount reads SOURCE:TARGET[:ro]. A relative source is one of this machine.
func readMount(text string) (docker.Mount, error) {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || len(parts) == 3 && parts[2] != "ro" && parts[2] != "rw" {
		return docker.Mount{}, usagef("--mount %q is not of the form SOURCE:TARGET or SOURCE:TARGET:ro", text)
	}
	source, err := filepath.Abs(parts[0])
	if err != nil {
		return docker.Mount{}, usagef("--mount %s: %s", text, err)
	}
	return docker.Mount{Source: filepath.ToSlash(source), Target: parts[1], ReadOnly: len(parts) == 3 && parts[2] == "ro"}, nil
}

// handedVars are the variables of commands elsewhere: those that were set, and those of this machine that were named.
func handedVars(o backendOptions) []string {
	var vars []string
	for _, name := range o.inherit.Pass {
		if value, ok := os.LookupEnv(name); ok {
			vars = append(vars, name+"="+value)
		}
	}
	return append(vars, o.vars...)
}

// openDocker opens a container. A process of its own removes what there is of the container if this one is killed while it
// is made; from then on the container sees to itself.
func openDocker(ctx context.Context, o backendOptions) (opened, error) {
	if o.inherit.Mode != vars.Filtered && o.inherit.Mode != "" {
		return opened{}, usagef("--inherit-vars: a container never starts with the host's variables; --pass-var hands single ones on")
	}
	cfg := o.container
	cfg.TTL = o.remote.ttl
	if err := cfg.Validate(); err != nil {
		return opened{}, dockerError(err)
	}
	engine, err := docker.Connect(ctx, docker.Address{})
	if err != nil {
		return opened{}, dockerError(err)
	}
	cfg.Vars = handedVars(o)
	cfg.Session = strings.ToLower(rand.Text())
	cfg.Note, cfg.Progress = o.note, o.note
	if self, err := executable(); err == nil {
		cfg.HelperProgram = docker.HelperProgram{Path: self, Args: []string{helperArgument}, IfMissing: true}
	}
	guard := startJanitor(cfg.Session)
	defer guard.dismiss()
	e, err := engine.Open(ctx, cfg)
	if err != nil {
		return opened{}, errors.Join(dockerError(err), engine.Close())
	}
	place := &dockerPlace{Environment: e, engine: engine}
	t := e.Ticket()
	return opened{
		Environment: place, session: cfg.Session, ticket: &ticket{Docker: &t, Daemon: engine.Address()}, leave: place.Leave,
		kill: func() { _ = e.Kill() },
		abandon: func() {
			ctx, cancel := context.WithTimeout(context.Background(), killTime)
			defer cancel()
			_ = engine.Discard(ctx, cfg.Session) // it is gone then, or ends by itself
		},
		isolated: true,
	}, nil
}

// dockerPlace is an environment whose engine goes with it.
type dockerPlace struct {
	*docker.Environment
	engine *docker.Engine
}

// Close implements env.Environment.
func (d *dockerPlace) Close() error { return errors.Join(d.Environment.Close(), d.engine.Close()) }

// Leave ends the contact and keeps the container.
func (d *dockerPlace) Leave() error { return errors.Join(d.Environment.Leave(), d.engine.Close()) }

// dockerError tells mistakes of the user from failures of the environment.
func dockerError(err error) error {
	var config *docker.ConfigError
	var image *docker.ImageError
	switch {
	case errors.As(err, &config):
		return usagef("%s: %s", flagOf(config.Field), config.Reason)
	case errors.As(err, &image) && image.Problem == docker.ImageBadReference:
		return usagef("--image: %s", image.Error())
	case errors.As(err, &image) && image.Problem == docker.ImagePlatform:
		return fmt.Errorf("%w; --platform chooses another one", err)
	case errors.As(err, &image) && image.Err == nil && image.Problem == docker.ImageMissing:
		return fmt.Errorf("%w; --pull missing fetches it", err)
	}
	return err
}

// flagOf names the flag of a value.
func flagOf(field string) string {
	switch field {
	case "address":
		return "DOCKER_HOST"
	case "working directory", "session":
		return field
	}
	return "--" + field
}
