package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/images"
)

// dockerBackend runs commands in a container.
type dockerBackend struct {
	notify func(string)
	config docker.Config
}

func (*dockerBackend) name() string { return "docker" }

func (*dockerBackend) inPlace() bool { return false }

func (*dockerBackend) serverUsage() (list, gc string) {
	return "name, state, age, owner and image of containers, and a note",
		"containers that never started or have ended, and volumes without a container; with --all " +
			"also your containers whose program has ended, unused helpers, and unused layers on images"
}

func (*dockerBackend) connectFlags() []cli.Flag { return nil }

func (*dockerBackend) parseConnection(*cli.Context) error { return nil }

func (*dockerBackend) flags() []cli.Flag {
	return slices.Concat(remoteFlags(), containerFlags(), []cli.Flag{
		&cli.StringFlag{
			Name: "platform", Category: groupDocker, DefaultText: "the daemon's",
			Usage: "use the image for `PLATFORM`, such as linux/arm64",
		},
		&cli.Int64Flag{
			Name: "pids", Category: groupDocker, DefaultText: fmt.Sprint(docker.DefaultPIDs),
			Usage: "limit the `NUMBER` of processes and threads",
		},
		&cli.BoolFlag{
			Name: "writable-root", Category: groupDocker,
			Usage: "let commands write wherever the user may, not only in the working directory, the home " +
				"directory and /tmp",
		},
		&cli.StringSliceFlag{
			Name: "mount", Category: groupDocker,
			Usage: "mount a directory of the daemon's machine, `SOURCE:TARGET[:ro]`; may be repeated",
		},
		&cli.StringSliceFlag{
			Name: "tmpfs", Category: groupDocker,
			Usage: "mount a directory in memory, `TARGET[:SIZE]`; may be repeated",
		},
		&cli.StringFlag{
			Name: "runtime", Category: groupDocker, DefaultText: "the daemon's",
			Usage: "use the daemon's runtime `NAME`, such as runsc",
		},
		&cli.BoolFlag{
			Name: noUploadFlag, Category: groupDocker,
			Usage: "do not upload the working directory; --workdir is then an absolute directory of the " +
				"image, which commands may change",
		},
	})
}

func (b *dockerBackend) parse(c *cli.Context) (err error) {
	options, err := parseRemoteFlags(c, b.notify)
	if err != nil {
		return err
	}
	cfg := docker.Config{
		Options: options, Progress: b.notify,
		Image: c.String("image"), Pull: docker.PullPolicy(c.String("pull")),
		Platform: c.String("platform"), CPUs: c.Float64("cpus"), PIDs: c.Int64("pids"),
		Network: docker.Network(c.String("network")), User: c.String("user"),
		Runtime: c.String("runtime"), WritableRoot: c.Bool("writable-root"),
	}
	if c.Bool(noUploadFlag) && len(c.StringSlice("upload-ignored")) > 0 {
		return usagef("--%s excludes --upload-ignored", noUploadFlag)
	}
	if dir := c.String("workdir"); dir != "" && c.Bool(noUploadFlag) {
		if !path.IsAbs(dir) {
			return usagef("--workdir: %q is not absolute; with --%s it is a directory of the image",
				dir, noUploadFlag)
		}
		cfg.WorkDir, cfg.OwnWorkDir = path.Clean(dir), true
	}
	if c.IsSet("pids") && cfg.PIDs == 0 {
		return usagef("--pids is 0; leave it out for the default")
	}
	if err := checkCPUs(c); err != nil {
		return err
	}
	if cfg.Memory, err = parseSize("memory", c.String("memory")); err != nil {
		return err
	}
	for _, text := range c.StringSlice("mount") {
		m, err := parseMount(text)
		if err != nil {
			return err
		}
		cfg.Mounts = append(cfg.Mounts, m)
	}
	for _, text := range c.StringSlice("tmpfs") {
		target, size, _ := strings.Cut(text, ":")
		bytes, err := parseSize("tmpfs", size)
		if err != nil {
			return err
		}
		cfg.Tmpfs = append(cfg.Tmpfs, docker.Tmpfs{Target: target, Size: bytes})
	}
	cfg.Labels = parseLabels(c)
	b.config = cfg
	return nil
}

// dockerNote passes a note of the library on, with a command that helps.
func (o openConfig) dockerNote(line string) {
	switch {
	case strings.HasSuffix(line, images.DefaultReference):
		o.noteOnce("image "+images.PublicReference, line+
			" (\"sandboxagent image build base\" builds it)")
	case strings.Contains(line, "system call filter"):
		o.notify(line + "; \"env verify\" tests it in part")
	default:
		o.notify(line)
	}
}

// parseMount reads SOURCE:TARGET[:ro]. A relative source is resolved on the host.
func parseMount(text string) (docker.Mount, error) {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" ||
		len(parts) == 3 && parts[2] != "ro" && parts[2] != "rw" {
		return docker.Mount{}, usagef("--mount %q is not of the form SOURCE:TARGET or SOURCE:TARGET:ro",
			text)
	}
	source, err := filepath.Abs(parts[0])
	if err != nil {
		return docker.Mount{}, usagef("--mount %s: %s", text, err)
	}
	readOnly := len(parts) == 3 && parts[2] == "ro"
	return docker.Mount{Source: filepath.ToSlash(source), Target: parts[1], ReadOnly: readOnly}, nil
}

func (b *dockerBackend) validate(image string) error {
	cfg := b.config
	cfg.Image = cmp.Or(image, cfg.Image)
	if err := cfg.Validate(); err != nil {
		return dockerError(err)
	}
	return nil
}

// open creates a container. A janitor process removes it if this process is killed while it creates
// it; from then on the container ends by itself.
func (b *dockerBackend) open(ctx context.Context, o openConfig) (_ opened, err error) {
	cfg := b.config
	cfg.Warn, cfg.Fill = o.dockerNote, o.fill
	if cfg.Vars, err = remoteVars(o); err != nil {
		return opened{}, err
	}
	if err := cfg.Validate(); err != nil {
		return opened{}, dockerError(err)
	}
	engine, err := docker.Connect(ctx, docker.Address{})
	if err != nil {
		return opened{}, dockerError(err)
	}
	cfg.Session = strings.ToLower(rand.Text())
	janitor := startJanitor(b.name(), "")
	defer janitor.dismiss()
	janitor.add(cfg.Session)
	e, err := engine.Open(ctx, cfg)
	janitor.drop(cfg.Session, nil)
	if err != nil {
		return opened{}, errors.Join(dockerError(err), engine.Close())
	}
	t := e.Ticket()
	return opened{
		plain: &dockerEnvironment{Environment: e, engine: engine},
		kill:  func() { _ = e.Kill() },
		abandon: func() {
			ctx, cancel := context.WithTimeout(context.Background(), killTime)
			defer cancel()
			_ = engine.Discard(ctx, cfg.Session) // a container that stays ends by itself
		},
		isolated: true, remote: true,
		keeping: &keeping{
			session: cfg.Session, ttl: cfg.TTL,
			stored: dockerKept{Ticket: t, Daemon: engine.Address()},
			leave:  func() error { return errors.Join(e.Leave(), engine.Close()) },
		},
	}, nil
}

// dockerEnvironment closes its connection to the daemon with itself.
type dockerEnvironment struct {
	*docker.Environment
	engine *docker.Engine
	// attached: another process opened the container, and Close only disconnects.
	attached bool
}

// Close implements env.Environment.
func (d *dockerEnvironment) Close() error {
	if d.attached {
		return errors.Join(d.Leave(), d.engine.Close())
	}
	err := d.Environment.Close()
	if err != nil {
		err = fmt.Errorf("%w (\"sandboxagent env gc\" removes the leftovers)", err)
	}
	return errors.Join(err, d.engine.Close())
}

// dockerKept is stored to reattach to a container.
type dockerKept struct {
	docker.Ticket
	// Daemon is the address of the daemon that the container is on.
	Daemon string `json:"daemon"`
}

// connect connects to the daemon of the container.
func (k dockerKept) connect(ctx context.Context) (*docker.Engine, error) {
	engine, err := docker.Connect(ctx, docker.Address{})
	if err != nil {
		return nil, dockerError(err)
	}
	if engine.Address() != k.Daemon {
		err := usagef("the environment is on the daemon %s; DOCKER_HOST or the docker context selects %s",
			k.Daemon, engine.Address())
		return nil, errors.Join(err, engine.Close())
	}
	return engine, nil
}

func (b *dockerBackend) attach(ctx context.Context, stored json.RawMessage) (opened, error) {
	var kept dockerKept
	if err := json.Unmarshal(stored, &kept); err != nil {
		return opened{}, err
	}
	engine, err := kept.connect(ctx)
	if err != nil {
		return opened{}, err
	}
	e, err := engine.Attach(ctx, kept.Ticket)
	if err != nil {
		return opened{}, errors.Join(dockerError(err), engine.Close())
	}
	return opened{
		plain: &dockerEnvironment{Environment: e, engine: engine, attached: true},
		kill:  func() {}, isolated: true, remote: true,
	}, nil
}

func (b *dockerBackend) remove(
	ctx context.Context, session string, stored json.RawMessage,
) (err error) {
	discard := func(e *docker.Engine) error { return e.Discard(ctx, session) }
	if stored == nil {
		return withDocker(ctx, discard)
	}
	var kept dockerKept
	if err := json.Unmarshal(stored, &kept); err != nil {
		return err
	}
	engine, err := kept.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	return discard(engine)
}

func (b *dockerBackend) list(ctx context.Context) (header []string, all []listed, err error) {
	err = withDocker(ctx, func(e *docker.Engine) error {
		found, err := e.List(ctx)
		for _, s := range found {
			all = append(all, listed{
				session: s.Session, own: s.Own,
				row: []string{s.Name, s.State, age(s.Created), s.Owner, s.Image, s.Reason},
			})
		}
		return err
	})
	return []string{"NAME", "STATE", "AGE", "OWNER", "IMAGE", "NOTE"}, all, err
}

func (*dockerBackend) session(name string) string {
	return strings.TrimPrefix(name, "sandboxagent-")
}

func (b *dockerBackend) gc(
	ctx context.Context, opts remote.CollectOptions,
) (removed []remote.Collected, err error) {
	err = withDocker(ctx, func(e *docker.Engine) error {
		removed, err = e.Collect(ctx, opts)
		return err
	})
	return removed, err
}

// demo runs in an image that has Go.
func (b *dockerBackend) demo() demoSupport {
	return demoSupport{
		flags: []string{"image", "pull", "platform", "user", "runtime", "helper-binary"},
		missingGo: "which the image does not have; \"sandboxagent image build go\" builds one that " +
			"has it",
		prepare: func(ctx context.Context, _ *openConfig, _ string) (func() error, error) {
			if b.config.Image != "" {
				return nil, nil
			}
			b.config.Image = "sandboxagent-go:latest"
			return nil, withDocker(ctx, func(e *docker.Engine) error {
				_, err := e.FindImage(ctx, b.config.Image)
				var image *docker.ImageError
				if errors.As(err, &image) {
					err = fmt.Errorf("the demonstration needs the image %s, which the daemon lacks "+
						"(\"sandboxagent image build go\" builds it)", b.config.Image)
				}
				return err
			})
		},
	}
}

// withDocker calls work with a connection to the daemon.
func withDocker(ctx context.Context, work func(*docker.Engine) error) (err error) {
	engine, err := docker.Connect(ctx, docker.Address{})
	if err != nil {
		return dockerError(err)
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	return work(engine)
}

// dockerError turns mistakes of the user into usageErrors and adds flags that help.
func dockerError(err error) error {
	var image *docker.ImageError
	switch {
	case errors.As(err, &image) && image.Problem == docker.ImageBadReference:
		return usagef("--image: %s", image.Error())
	case errors.As(err, &image) && image.Problem == docker.ImagePlatform:
		return fmt.Errorf("%w (--platform selects another one)", err)
	case errors.As(err, &image) && image.Problem == docker.ImageMissing && image.Err == nil:
		return fmt.Errorf("%w (--pull=missing pulls it)", err)
	}
	return remoteError(&dockerBackend{}, err, map[string]string{
		"address": "DOCKER_HOST", "working directory": "--workdir",
	})
}
