package k8s

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandboxagent/sandboxagent/env/remote"
)

// Listed is a pod of this package. Its State is the phase of the pod, in lower case. Its Owner is
// user@machine of the creator.
type Listed struct {
	remote.Listed
	// Name is the pod's; Session is a part of it. Node is empty before the pod is scheduled.
	Name, Node string
	Image      string
	// Own reports that this user on this machine created it.
	Own bool
	// Abandoned reports that the pod runs, and that its creator, a process of this user and machine,
	// has ended.
	Abandoned bool

	uid string
}

// reportTime is the time that a kubelet has to report that the container of commands has started.
const reportTime = 30 * time.Second

// List returns the pods of this package in the namespace, of all owners, the oldest first.
func (c *Cluster) List(ctx context.Context) ([]Listed, error) {
	pods, err := c.listPods(ctx, labelManager+"="+manager+","+labelSession)
	if err != nil {
		return nil, fmt.Errorf("k8s: list pods: %w", err)
	}
	list := make([]Listed, 0, len(pods))
	for _, pod := range pods {
		l := Listed{
			Listed: remote.Listed{
				Session: pod.Labels[labelSession], State: strings.ToLower(string(pod.Status.Phase)),
				Created: pod.CreationTimestamp.Time, Owner: pod.Annotations[annotationOwner],
			},
			Name: pod.Name, Node: pod.Spec.NodeName, uid: string(pod.UID),
			Own: pod.Labels[labelOwner] == ownerLabel(remote.Owner()),
		}
		l.TTL, _ = time.ParseDuration(pod.Annotations[annotationLease]) // 0 is unknown
		for _, k := range pod.Spec.Containers {
			if k.Name == sandboxName {
				l.Image = k.Image
			}
		}
		l.assess(pod, time.Now())
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b Listed) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	return list, nil
}

// assess sets Garbage, Abandoned and Reason.
func (l *Listed) assess(pod corev1.Pod, now time.Time) {
	o := &observed{pod: &pod}
	orphan := l.Own && remote.ProcessEnded(pod.Annotations[annotationProcess])
	by, err := time.Parse(time.RFC3339, pod.Annotations[annotationReady])
	switch {
	case pod.DeletionTimestamp != nil:
		l.Reason = "it is being deleted"
	case hasEnded(&pod):
		l.Garbage, l.Reason = true, "it has ended"
	case isServing(o) && orphan:
		l.Abandoned = true
		l.Reason = fmt.Sprintf("its client has ended; it ends %s after that", l.TTL)
	case isServing(o):
		l.Reason = "in use" // without a client it ends by itself
	case (isFilling(o) || isFilled(o)) && !orphan: // which may take longer than the start
		l.Reason = "it is being filled"
	case orphan && now.Sub(lastChange(&pod)) > reportTime:
		l.Garbage, l.Reason = true, "its client ended before it started"
	case err != nil || now.After(by):
		l.Garbage, l.Reason = true, "it has never started"
	default:
		l.Reason = "it is about to start"
	}
}

// lastChange returns when a pod was created or a condition of it changed, such as that it has a
// node.
func lastChange(pod *corev1.Pod) time.Time {
	last := pod.CreationTimestamp.Time
	for _, k := range pod.Status.Conditions {
		if k.LastTransitionTime.After(last) {
			last = k.LastTransitionTime.Time
		}
	}
	return last
}

// Collect deletes the pods of this user and machine that no client can use: they have ended, or
// have not started in time. With o.All it also deletes those that are Abandoned. It never deletes a
// pod of another owner.
func (c *Cluster) Collect(
	ctx context.Context, o remote.CollectOptions,
) ([]remote.Collected, error) {
	list, err := c.List(ctx)
	if err != nil {
		return nil, err
	}
	return o.Collect(func(add func(kind, name, reason string, remove func() error)) error {
		for _, l := range list {
			if l.Own && (l.Garbage || o.All && l.Abandoned) {
				add("pod", l.Name, l.Reason, func() error { return c.deletePod(ctx, l.Name, l.uid) })
			}
		}
		return nil
	})
}

// Discard deletes the pod of a session, for a client that died.
func (c *Cluster) Discard(ctx context.Context, session string) error {
	if !remote.IsSession(session) {
		return badConfig("session", "%q is no session", session)
	}
	if err := c.deletePod(ctx, namePrefix+session, ""); err != nil {
		return fmt.Errorf("k8s: %w", err)
	}
	return nil
}
