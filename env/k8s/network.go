package k8s

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/internal/shorten"
)

const (
	// probeTimeout bounds a probe of the network.
	probeTimeout = 10 * time.Second
	// policyTime is how long a cluster may take to enforce a policy, and policyPause the pause between
	// two probes.
	policyTime  = 10 * time.Second
	policyPause = 500 * time.Millisecond
)

// checkNetwork returns whether the pod is kept from the network. If that is a condition, it gives
// the cluster time to enforce the policy.
func (e *Environment) checkNetwork(ctx context.Context) (env.Guarantee, error) {
	if e.config.Network != NetworkNone {
		return env.Guarantee{}, nil
	}
	other, err := e.handle.cluster.otherPolicy(ctx, e.handle.name)
	if err != nil {
		return env.Guarantee{}, err
	}
	if other != "" {
		return env.Guarantee{
			Name: env.NoNetwork, Strength: env.BestEffort,
			By: "a network policy; the policy " + other + " of the namespace allows the pod some traffic",
		}, nil
	}
	for end := time.Now().Add(policyTime); ; {
		g, err := e.probeNetwork(ctx)
		if err != nil || g.Strength == env.Enforced || !e.config.RequireNoNetwork ||
			time.Now().After(end) {
			return g, err
		}
		select {
		case <-time.After(policyPause):
		case <-ctx.Done():
			return g, context.Cause(ctx)
		}
	}
}

// otherPolicy returns the name of a policy of another owner that allows a pod some traffic: what
// one policy allows, no other can deny.
func (c *Cluster) otherPolicy(ctx context.Context, pod string) (string, error) {
	var list networkingv1.NetworkPolicyList
	err := c.Call(ctx, func(ctx context.Context) error {
		return c.nets.Get().Namespace(c.namespace).Resource("networkpolicies").VersionedParams(
			&metav1.ListOptions{LabelSelector: labelManager + "!=" + manager}, parameters).
			Do(ctx).Into(&list)
	})
	if err != nil {
		return "", fmt.Errorf("list the network policies of the namespace: %w", err)
	}
	own := c.watch.last(pod)
	for _, p := range list.Items {
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err == nil && own != nil && !selector.Matches(labels.Set(own.Labels)) {
			continue
		}
		if len(p.Spec.Ingress) > 0 || len(p.Spec.Egress) > 0 {
			return p.Name, nil
		}
	}
	return "", nil
}

// probeNetwork returns whether the pod is kept from the network: the helper tries to connect to the
// API server, the name server and the node. A plugin for networks may ignore policies.
func (e *Environment) probeNetwork(ctx context.Context) (env.Guarantee, error) {
	argv := append([]string{programPath}, slices.Concat(e.handle.program.Args, []string{"reach"})...)
	if pod := e.handle.cluster.watch.last(e.handle.name); pod != nil && pod.Status.HostIP != "" {
		argv = append(argv, net.JoinHostPort(pod.Status.HostIP, "10250")) // the kubelet
	}
	var stdout, stderr bytes.Buffer
	result, err := e.Exec(ctx, env.Command{
		Argv: argv, Dir: "/", Timeout: probeTimeout, Stdout: &stdout, Stderr: &stderr,
	})
	if err != nil {
		return env.Guarantee{}, fmt.Errorf("probe the network: %w", err)
	}
	if result.ExitCode != 0 || result.TimedOut {
		return env.Guarantee{}, fmt.Errorf("probe the network: exit code %d: %s", result.ExitCode,
			shorten.Line(stderr.String()))
	}
	g := env.Guarantee{
		Name: env.NoNetwork, Strength: env.Enforced,
		By: "a network policy; from inside, nothing answers that the probe knows",
	}
	if answered := shorten.Line(stdout.String()); answered != "" {
		g.Strength = env.Absent
		g.By = "the cluster ignores the network policy: " + answered + " answered"
	}
	return g, nil
}
