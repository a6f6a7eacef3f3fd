package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"
	"golang.org/x/sync/errgroup"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/k8s"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// maxPodTemplate bounds the file of --pod-template, in bytes.
const maxPodTemplate = 1 << 20

// k8sBackend runs commands in a pod.
type k8sBackend struct {
	notify  func(string)
	address k8s.Address
	config  k8s.Config
	// shared is the connection of all environments of a batch; nil gives each its own.
	shared *sharedCluster
}

// sharedCluster is a connection that is opened once: all environments of a batch have one watch and
// one janitor, which deletes the pods that are there when this process ends. Without one they
// complete by themselves.
type sharedCluster struct {
	mu      sync.Mutex
	current *usedCluster
	janitor *guard
}

// usedCluster is a connection with the number of its users, and the janitor.
type usedCluster struct {
	*k8s.Cluster
	users   int
	janitor *guard
}

// connect returns the connection, and a function that ends its use.
func (s *sharedCluster) connect(
	ctx context.Context, a k8s.Address,
) (*usedCluster, func() error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		c, err := k8s.Connect(ctx, a)
		if err != nil {
			return nil, nil, err
		}
		if s.janitor == nil {
			where, err := json.Marshal(c.Address())
			if err != nil {
				return nil, nil, errors.Join(err, c.Close())
			}
			s.janitor = startJanitor((&k8sBackend{}).name(), string(where))
		}
		s.current = &usedCluster{Cluster: c, janitor: s.janitor}
	}
	u := s.current
	u.users++
	return u, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if u.users--; u.users == 0 && u != s.current {
			return u.Close()
		}
		return nil
	}, nil
}

// replace has the next connect read the credentials again. Environments that are open keep u.
func (s *sharedCluster) replace(u *usedCluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == u {
		s.current = nil // its users close it
	}
}

// close closes the connection, if one is open, and dismisses the janitor.
func (s *sharedCluster) close() (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		err = s.current.Close()
		s.current = nil
	}
	s.janitor.dismiss()
	s.janitor = nil
	return err
}

func (*k8sBackend) name() string { return "k8s" }

func (*k8sBackend) inPlace() bool { return false }

func (*k8sBackend) serverUsage() (list, gc string) {
	return "name, phase, age, owner, node and image of pods in the namespace, and a note",
		"your pods that have ended or never started; with --all also those whose program has ended"
}

func (*k8sBackend) connectFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{
			Name: "kubeconfig", Category: groupK8s, DefaultText: "as kubectl, in a pod its account",
			Usage: "read how to connect to the cluster from `FILE`",
		},
		&cli.StringFlag{
			Name: "context", Category: groupK8s, DefaultText: "the current one",
			Usage: "use the context `NAME` of the kubeconfig",
		},
		&cli.StringFlag{
			Name: "namespace", Category: groupK8s, DefaultText: "that of the context",
			Usage: "create pods in the namespace `NAME`",
		},
		&cli.StringFlag{
			Name: "as", Category: groupK8s, Usage: "impersonate the `USER` of the cluster",
		},
		&cli.StringSliceFlag{
			Name: "as-group", Category: groupK8s,
			Usage: "impersonate the `GROUP` of the cluster; may be repeated",
		},
	}
}

func (b *k8sBackend) flags() []cli.Flag {
	return slices.Concat(remoteFlags(), containerFlags(), b.connectFlags(), []cli.Flag{
		enforceFlag(),
		&cli.StringFlag{
			Name: "disk", Category: groupK8s, DefaultText: sizeText(k8s.DefaultDisk),
			Usage: "limit what the pod writes to `SIZE`",
		},
		&cli.StringFlag{
			Name: "helper-image", Category: groupK8s, DefaultText: "send the helper through the image's sh",
			Usage: "install the helper from `IMAGE`, such as that of \"image build helper\"",
		},
		&cli.StringFlag{
			Name: "runtime-class", Category: groupK8s,
			Usage: "run the pod by the runtime class `NAME`, such as gvisor",
		},
		&cli.StringFlag{
			Name: "pod-template", Category: groupK8s,
			Usage: "add the fields of a pod in `FILE`, which is YAML",
		},
		&cli.StringSliceFlag{
			Name: "allow-pod-field", Category: groupK8s,
			Usage: "let the template have the field `PATH`, which may weaken the sandbox; may be repeated",
		},
		&cli.DurationFlag{
			Name: "start-timeout", Category: groupK8s, DefaultText: k8s.DefaultStartTimeout.String(),
			Usage: "fail if the pod is not ready within this `DURATION`",
		},
		&cli.DurationFlag{
			Name: "deadline", Category: groupK8s, DefaultText: k8s.DefaultDeadline.String(),
			Usage: "have the cluster end the pod after this `DURATION`, as the last resort",
		},
	})
}

func (b *k8sBackend) parse(c *cli.Context) (err error) {
	options, err := parseRemoteFlags(c, b.notify)
	if err != nil {
		return err
	}
	options.StartTimeout = c.Duration("start-timeout")
	cfg := k8s.Config{
		Options: options, Image: c.String("image"), Pull: k8s.PullPolicy(c.String("pull")),
		HelperImage: c.String("helper-image"), CPUs: c.Float64("cpus"), User: c.String("user"),
		Network: k8s.Network(c.String("network")), RuntimeClass: c.String("runtime-class"),
		Labels: parseLabels(c), Deadline: c.Duration("deadline"),
		AllowFields: c.StringSlice("allow-pod-field"),
	}
	enforce, err := parseEnforce(c)
	if err != nil {
		return err
	}
	for _, name := range enforce {
		if name != env.NoNetwork {
			return usagef("--enforce: %s is not one that a pod may lack; %s is", name, env.NoNetwork)
		}
		cfg.RequireNoNetwork = true
	}
	if err := checkCPUs(c); err != nil {
		return err
	}
	if cfg.Memory, err = parseSize("memory", c.String("memory")); err != nil {
		return err
	}
	if cfg.Disk, err = parseSize("disk", c.String("disk")); err != nil {
		return err
	}
	if file := c.String("pod-template"); file != "" {
		if cfg.Template, err = readFile(file, maxPodTemplate); err != nil {
			return usagef("--pod-template: %s", err)
		}
	}
	b.config = cfg
	return b.parseConnection(c)
}

func (b *k8sBackend) parseConnection(c *cli.Context) error {
	b.address = k8s.Address{
		Kubeconfig: c.String("kubeconfig"), Context: c.String("context"),
		Namespace: c.String("namespace"), User: c.String("as"), Groups: c.StringSlice("as-group"),
	}
	if file := b.address.Kubeconfig; file != "" {
		if err := checkExists(file); err != nil {
			return usagef("--kubeconfig: %s", err)
		}
	}
	return nil
}

func (b *k8sBackend) validate(image string) error {
	cfg := b.config
	cfg.Image = cmp.Or(image, cfg.Image)
	if err := cfg.Validate(); err != nil {
		return k8sError(err)
	}
	return nil
}

// open creates a pod. If a cluster rejects the credentials of a shared connection, it tries again
// with those that the kubeconfig has now.
func (b *k8sBackend) open(ctx context.Context, o openConfig) (opened, error) {
	e, err := b.openPod(ctx, o)
	var failed *k8s.ClusterError
	if b.shared != nil && errors.As(err, &failed) && failed.Denied {
		return b.openPod(ctx, o)
	}
	return e, err
}

// openPod creates a pod.
func (b *k8sBackend) openPod(ctx context.Context, o openConfig) (_ opened, err error) {
	cfg := b.config
	cfg.Warn, cfg.Fill = o.notify, o.fill
	if cfg.Vars, err = remoteVars(o); err != nil {
		return opened{}, err
	}
	if err := cfg.Validate(); err != nil {
		return opened{}, k8sError(err)
	}
	shared := cmp.Or(b.shared, &sharedCluster{})
	cluster, disconnect, err := shared.connect(ctx, b.address)
	if err != nil {
		return opened{}, k8sError(err)
	}
	if b.shared == nil {
		disconnect = shared.close
	}
	cfg.Session = strings.ToLower(rand.Text())
	cluster.janitor.add(cfg.Session)
	e, err := cluster.Open(ctx, cfg)
	if err != nil {
		cluster.janitor.drop(cfg.Session, err)
		var failed *k8s.ClusterError
		if b.shared != nil && errors.As(err, &failed) && failed.Denied {
			shared.replace(cluster)
		}
		return opened{}, errors.Join(k8sError(err), disconnect())
	}
	if o.keep { // for other programs
		cluster.janitor.drop(cfg.Session, nil)
	}
	for _, g := range e.Info().Guarantees {
		if g.Name == env.NoNetwork && g.Strength != env.Enforced {
			o.notify("commands can use the network: " + g.By)
		}
	}
	drop := func(err error) {
		if !o.keep {
			cluster.janitor.drop(cfg.Session, err)
		}
	}
	return opened{
		plain: &k8sEnvironment{Environment: e, disconnect: disconnect, closed: drop},
		kill:  func() { _ = e.Kill() },
		abandon: func() {
			ctx, cancel := context.WithTimeout(context.Background(), killTime)
			defer cancel()
			_ = cluster.Discard(ctx, cfg.Session) // a pod that stays completes by itself
		},
		isolated: true, remote: true,
		keeping: &keeping{
			session: cfg.Session, ttl: cfg.TTL,
			stored: k8sKept{Ticket: e.Ticket(), Address: cluster.Address()},
			leave: func() error {
				drop(nil)
				return errors.Join(e.Leave(), disconnect())
			},
		},
	}, nil
}

// discardPods deletes the pods of sessions at a k8s.Address, in JSON.
func discardPods(ctx context.Context, where string, sessions []string) error {
	var a k8s.Address
	if err := json.Unmarshal([]byte(where), &a); err != nil {
		return err
	}
	return withCluster(ctx, a, func(c *k8s.Cluster) error {
		var all errgroup.Group
		all.SetLimit(discarding)
		for _, session := range sessions {
			all.Go(func() error { return c.Discard(ctx, session) })
		}
		return all.Wait()
	})
}

// discarding bounds the requests of a janitor at the same time.
const discarding = 16

// k8sEnvironment ends the use of its connection to the cluster with itself.
type k8sEnvironment struct {
	*k8s.Environment
	disconnect func() error
	// closed is called with the result of closing the environment.
	closed func(error)
	// attached: another process opened the pod, and Close only disconnects.
	attached bool
}

// Close implements env.Environment.
func (k *k8sEnvironment) Close() error {
	if k.attached {
		return errors.Join(k.Leave(), k.disconnect())
	}
	err := k.Environment.Close()
	k.closed(err)
	if err != nil {
		err = fmt.Errorf("%w (\"sandboxagent env gc --env=k8s\" removes the leftovers)", err)
	}
	return errors.Join(err, k.disconnect())
}

// k8sKept is stored to reattach to a pod.
type k8sKept struct {
	k8s.Ticket
	Address k8s.Address `json:"address"`
}

// cluster connects to the namespace of the pod.
func (k k8sKept) cluster(ctx context.Context) (*k8s.Cluster, error) {
	c, err := k8s.Connect(ctx, k.Address)
	return c, k8sError(err)
}

func (b *k8sBackend) attach(ctx context.Context, stored json.RawMessage) (opened, error) {
	var kept k8sKept
	if err := json.Unmarshal(stored, &kept); err != nil {
		return opened{}, err
	}
	cluster, err := kept.cluster(ctx)
	if err != nil {
		return opened{}, err
	}
	e, err := cluster.Attach(ctx, kept.Ticket)
	if err != nil {
		return opened{}, errors.Join(k8sError(err), cluster.Close())
	}
	return opened{
		plain: &k8sEnvironment{Environment: e, disconnect: cluster.Close, attached: true},
		kill:  func() {}, isolated: true, remote: true,
	}, nil
}

func (b *k8sBackend) remove(ctx context.Context, session string, stored json.RawMessage) error {
	address := b.address
	if stored != nil {
		var kept k8sKept
		if err := json.Unmarshal(stored, &kept); err != nil {
			return err
		}
		address = kept.Address
	}
	return withCluster(ctx, address, func(c *k8s.Cluster) error { return c.Discard(ctx, session) })
}

func (b *k8sBackend) list(ctx context.Context) (header []string, all []listed, err error) {
	err = withCluster(ctx, b.address, func(c *k8s.Cluster) error {
		found, err := c.List(ctx)
		for _, s := range found {
			all = append(all, listed{
				session: s.Session, own: s.Own,
				row: []string{
					s.Name, s.State, age(s.Created), s.Owner, cmp.Or(s.Node, "-"), s.Image, s.Reason,
				},
			})
		}
		return err
	})
	return []string{"NAME", "STATE", "AGE", "OWNER", "NODE", "IMAGE", "NOTE"}, all, err
}

func (*k8sBackend) session(name string) string { return strings.TrimPrefix(name, "sandboxagent-") }

func (b *k8sBackend) gc(
	ctx context.Context, opts remote.CollectOptions,
) (removed []remote.Collected, err error) {
	err = withCluster(ctx, b.address, func(c *k8s.Cluster) error {
		removed, err = c.Collect(ctx, opts)
		return err
	})
	return removed, err
}

// demo runs in an image that has Go.
func (b *k8sBackend) demo() demoSupport {
	return demoSupport{
		flags: []string{
			"image", "pull", "user", "cpus", "memory", "helper-binary", "helper-image", "kubeconfig",
			"context", "namespace", "runtime-class", "pod-template", "allow-pod-field",
		},
		missingGo: "which the image does not have; --image names one that has it",
		prepare: func(context.Context, *openConfig, string) (func() error, error) {
			b.config.Image = cmp.Or(b.config.Image, "golang:1.26-bookworm")
			return nil, nil
		},
	}
}

// withCluster calls work with a connection to a cluster.
func withCluster(
	ctx context.Context, address k8s.Address, work func(*k8s.Cluster) error,
) (err error) {
	cluster, err := k8s.Connect(ctx, address)
	if err != nil {
		return k8sError(err)
	}
	defer func() { err = errors.Join(err, cluster.Close()) }()
	return k8sError(work(cluster))
}

// k8sError turns mistakes of the user into usageErrors and adds flags that help.
func k8sError(err error) error {
	if err == nil {
		return nil
	}
	var config *k8s.ConfigError
	switch {
	case errors.Is(err, k8s.ErrNoShell):
		return fmt.Errorf("%w (--helper-image names an image with the helper)", err)
	case errors.As(err, &config) && config.Field == "pod": // the cluster's doing
		return fmt.Errorf("%w (--allow-pod-field)", err)
	case errors.Is(err, k8s.ErrPodField):
		return usagef("%s (--allow-pod-field)", strings.TrimPrefix(err.Error(), "k8s: "))
	}
	return remoteError(&k8sBackend{}, err, map[string]string{
		"kubeconfig": "--kubeconfig", "working directory": "--workdir", "pod template": "--pod-template",
		"helper image": "--helper-image", "start timeout": "--start-timeout",
	})
}
