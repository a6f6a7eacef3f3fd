package k8s

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// inherited selects the variables of the helper's process, which are those of the image and of the
// pod template, for commands.
const inherited = vars.All

// served hides the embedded field.
type served = remote.Environment

// Environment is an environment in a pod. Cluster.Open and Cluster.Attach return it.
//
// It implements env.Environment, search.Searcher and env.MultiReader, and has the methods Kill,
// Leave and Session of remote.Environment. Close deletes the pod, for all of its clients; a missing
// one is not an error. If the cluster does not answer, Close returns an error after a minute, and
// the pod completes by itself after Config.TTL.
type Environment struct {
	*served
	handle  *handle
	config  Config // with its defaults; after Attach only Session and TTL
	network env.Guarantee
}

var (
	_ env.Environment = (*Environment)(nil)
	_ search.Searcher = (*Environment)(nil)
	_ env.MultiReader = (*Environment)(nil)
)

// Pod returns the name of the pod.
func (e *Environment) Pod() string { return e.handle.name }

// Info implements env.Environment. The guarantee env.NoNetwork has the result of the probe. With
// Config.Fill it has env.ReadOnlyFiles.
func (e *Environment) Info() env.Info {
	info := e.served.Info()
	if e.network.Name != "" {
		info.Guarantees = append(info.Guarantees, e.network)
	}
	if e.config.Fill != nil {
		info.Guarantees = append(info.Guarantees, env.Guarantee{
			Name: env.ReadOnlyFiles, Strength: env.Enforced,
			By: "Kubernetes: read-only mounts of the working directory and of the template's volumes",
		})
	}
	return info
}

// Ticket identifies an environment for Attach. It is a secret: with it and the cluster anybody can
// use the environment. Its fields are for encoding; their meaning may change.
type Ticket struct {
	remote.Ticket
	Pod       string `json:"pod"`
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
}

// Ticket returns the ticket for reattaching to the environment.
func (e *Environment) Ticket() Ticket {
	return Ticket{
		Ticket: e.served.Ticket(), Pod: e.handle.name, UID: string(e.handle.uid),
		Namespace: e.handle.cluster.namespace,
	}
}

// Attach reattaches to a running environment, which may have other clients. The error is
// env.ErrGone if it has ended. Close deletes the pod for all clients; Leave disconnects only this
// one.
func (c *Cluster) Attach(ctx context.Context, t Ticket) (*Environment, error) {
	if !t.Valid() || t.Pod == "" {
		return nil, badConfig("session", "the ticket is invalid")
	}
	if t.Namespace != c.namespace {
		return nil, badConfig("namespace", "the environment is in the namespace %s, not in %s",
			t.Namespace, c.namespace)
	}
	if err := c.checkOpen(); err != nil {
		return nil, err
	}
	h := &handle{
		cluster: c, name: t.Pod, uid: types.UID(t.UID), program: &remote.Program{Args: t.Args},
	}
	rc := h.connection()
	// Another process configured the pod.
	rc.Isolation = func(env.Guarantee) env.Guarantee { return env.Guarantee{} }
	served, err := remote.Attach(ctx, rc, t.Ticket)
	if err != nil {
		return nil, fmt.Errorf("k8s: %w", err)
	}
	cfg := Config{Options: remote.Options{Session: t.Session, TTL: t.TTL}}
	return &Environment{served: served, handle: h, config: cfg}, nil
}

// connection returns the configuration of a client of the pod's helper.
func (h *handle) connection() remote.Config {
	return remote.Config{
		Backend: backend, Args: h.program.Args, Close: h.close,
		Dial: func(ctx context.Context) (io.ReadWriteCloser, error) { return h.dial(ctx, sandboxName) },
	}
}

// close deletes the pod after the helper has ended its commands.
func (h *handle) close(closeHelper func() error) error {
	return remote.Remove(backend, closeHelper, func() error { return h.discard(context.Background()) })
}

// isolation returns the guarantee of the pod.
func (c Config) isolation(env.Guarantee) env.Guarantee {
	by := "the kernel's namespaces, no capabilities, no_new_privs and the runtime's system call filter"
	if c.RuntimeClass != "" {
		by = "the runtime class " + c.RuntimeClass + ", with " + by
	}
	if c.Network == NetworkFull {
		by += "; commands can use the network"
	}
	if allowed := slices.Sorted(slices.Values(c.AllowFields)); len(allowed) > 0 {
		by += fmt.Sprintf("; the pod template may set %s", strings.Join(allowed, ", "))
		return env.Guarantee{Strength: env.BestEffort, By: by}
	}
	return env.Guarantee{Strength: env.Enforced, By: by}
}
