package k8s

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sandboxagent/sandboxagent/internal/shorten"
)

// ErrQuota means that a quota of the namespace has no room for a pod.
var ErrQuota = errors.New("the namespace has no room for a pod")

// quotaPause is the pause between two attempts to create a pod for which a quota has no room.
const quotaPause = 3 * time.Second

// IsQuota reports whether the server has refused an object because a quota of the namespace has no
// room for it.
func IsQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// exceeds reports whether a pod is larger than a whole quota, by the error of the server:
// "exceeded quota: NAME, requested: cpu=2, used: cpu=0, limited: cpu=1".
func exceeds(err error) bool {
	_, text, _ := strings.Cut(err.Error(), "requested: ")
	requested, text, _ := strings.Cut(text, ", used: ")
	_, limited, _ := strings.Cut(text, ", limited: ")
	limits := make(map[string]string)
	for part := range strings.SplitSeq(limited, ",") {
		name, value, _ := strings.Cut(part, "=")
		limits[name] = value
	}
	for part := range strings.SplitSeq(requested, ",") {
		name, value, _ := strings.Cut(part, "=")
		want, err := resource.ParseQuantity(value)
		limit, lerr := resource.ParseQuantity(limits[name])
		if err == nil && lerr == nil && want.Cmp(limit) > 0 {
			return true
		}
	}
	return false
}

// waitForQuota tries to create a pod until the quota has room. The timer of StartTimeout stands
// still meanwhile.
func (c *Cluster) waitForQuota(
	ctx context.Context, pod *corev1.Pod, cfg Config, timer *time.Timer, err error,
) (created *corev1.Pod, _ error) {
	timer.Stop()
	defer timer.Reset(cfg.StartTimeout)
	if cfg.WaitForQuota > 0 && cfg.Warn != nil && !exceeds(err) {
		cfg.Warn("a pod waits for room in a quota: " + shorten.Line(err.Error()))
	}
	for end := time.Now().Add(cfg.WaitForQuota); IsQuota(err); {
		if exceeds(err) {
			return nil, err
		}
		if time.Now().After(end) || !wait(ctx, quotaPause) {
			return nil, fmt.Errorf("%w: %w", ErrQuota, err)
		}
		pod.Annotations[annotationReady] = readyBy(cfg)
		created, err = c.createPod(context.WithoutCancel(ctx), pod, false)
	}
	return created, err
}
