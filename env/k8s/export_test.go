package k8s

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// Unthrottled reports whether the clients of a connection have no limit of requests.
func Unthrottled(c *Cluster) bool {
	return c.core.GetRateLimiter() == nil && c.nets.GetRateLimiter() == nil
}

// CheckAdmitted is Config.checkAdmitted.
func CheckAdmitted(c Config, asked, got *corev1.Pod) error { return c.checkAdmitted(asked, got) }

// StartBare starts a pod that sleeps, and waits until it is ready. remove deletes it.
func StartBare(
	ctx context.Context, c *Cluster, name, image string,
) (remove func() error, err error) {
	c.watch.follow(name)
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(10001)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: "c", Image: image, ImagePullPolicy: corev1.PullNever,
			Command: []string{"sleep", "100000"},
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false),
				Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
		TerminationGracePeriodSeconds: new(int64(0)),
	}}
	pod.Name, pod.Labels = name, map[string]string{labelClient: c.client}
	if _, err := c.createPod(ctx, pod, false); err != nil {
		return nil, err
	}
	return func() error { return c.deletePod(context.WithoutCancel(ctx), name, "") },
		c.watch.until(ctx, name, func(o *observed) (bool, error) {
			for _, k := range o.pod.Status.Conditions {
				if k.Type == corev1.PodReady && k.Status == corev1.ConditionTrue {
					return true, nil
				}
			}
			return false, nil
		})
}

// StartFailure returns why a pod will not start.
func StartFailure(pod *corev1.Pod) error { return startFailure(pod) }

// DigestOwner is digestOwner.
var DigestOwner = digestOwner

// ReadyBy returns the time after which a pod of a configuration that has not started is garbage.
func ReadyBy(c Config) string { return readyBy(c) }

// Assess returns what a list tells of a pod.
func Assess(pod corev1.Pod, own bool, now time.Time) Listed {
	l := Listed{Own: own}
	l.Created = pod.CreationTimestamp.Time
	l.assess(pod, now)
	return l
}

// IsolationOf returns the guarantee of the pods of a configuration.
func IsolationOf(c Config) env.Guarantee { return c.isolation(env.Guarantee{}) }

// PodOf returns the pod that a configuration asks for.
func PodOf(t *testing.T, c Config) *corev1.Pod {
	t.Helper()
	c, err := c.check()
	if err != nil {
		t.Fatal(err)
	}
	pod, err := c.pod(&remote.Program{})
	if err != nil {
		t.Fatal(err)
	}
	return pod
}
