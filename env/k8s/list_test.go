package k8s_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sandboxagent/sandboxagent/env/k8s"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// TestAssess decides which pods are garbage.
func TestAssess(t *testing.T) {
	t.Parallel()
	now := time.Now()
	alive := remote.ThisProcess()
	_, start, _ := strings.Cut(alive, ":")
	ended := "1:" + start // another process has this number
	serving := corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: "sandbox", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}}
	for _, tt := range []struct {
		reason             string
		status             corev1.PodStatus
		own                bool
		process            string
		age, left          time.Duration
		garbage, abandoned bool
	}{
		{reason: "in use", status: serving, own: true, process: alive},
		{reason: "its client has ended", status: serving, own: true, process: ended, abandoned: true},
		{reason: "in use", status: serving, process: ended},
		{reason: "it has ended", status: corev1.PodStatus{Phase: corev1.PodSucceeded}, garbage: true},
		{
			reason: "its client ended before it started", own: true, process: ended,
			age: 31 * time.Second, left: time.Minute, garbage: true,
		},
		{
			reason: "it is about to start", own: true, process: ended,
			age: 29 * time.Second, left: time.Minute,
		},
		{
			reason: "it is about to start", own: true, process: ended, age: time.Hour, left: time.Minute,
			status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
				Type: corev1.PodScheduled, LastTransitionTime: metav1.NewTime(now.Add(-29 * time.Second)),
			}}},
		},
		{reason: "it is about to start", process: ended, age: time.Hour, left: time.Minute},
		{
			reason: "it is about to start", own: true, process: alive, age: time.Hour, left: time.Minute,
		},
		{
			reason: "it has never started", own: true, process: alive, age: time.Hour, left: -time.Minute,
			garbage: true,
		},
	} {
		pod := corev1.Pod{Status: tt.status}
		pod.CreationTimestamp.Time = now.Add(-tt.age)
		pod.Annotations = map[string]string{
			"sandboxagent/process":  tt.process,
			"sandboxagent/start-by": now.Add(tt.left).Format(time.RFC3339),
		}
		l := k8s.Assess(pod, tt.own, now)
		if !strings.HasPrefix(l.Reason, tt.reason) || l.Garbage != tt.garbage ||
			l.Abandoned != tt.abandoned {
			t.Errorf("%+v: garbage %t, abandoned %t, %q", tt, l.Garbage, l.Abandoned, l.Reason)
		}
	}
}

// TestLateStart has a pod whose client reports why it did not start in time, and deletes it.
func TestLateStart(t *testing.T) {
	t.Parallel()
	cfg := k8s.Config{Options: remote.Options{StartTimeout: time.Minute}}
	created := time.Now()
	var pod corev1.Pod
	pod.Annotations = map[string]string{"sandboxagent/start-by": k8s.ReadyBy(cfg)}
	for _, tt := range []struct {
		age     time.Duration
		garbage bool
	}{{cfg.StartTimeout, false}, {cfg.StartTimeout + 10*time.Second, false}, {time.Hour, true}} {
		if l := k8s.Assess(pod, true, created.Add(tt.age)); l.Garbage != tt.garbage {
			t.Errorf("after %s: garbage %t: %s", tt.age, l.Garbage, l.Reason)
		}
	}
}

// TestOwners has users of the same name on machines of the same name.
func TestOwners(t *testing.T) {
	t.Parallel()
	const first = "pid:[4026531836]"
	labels := make(map[string]bool)
	for _, machine := range [][3]string{
		{"one", first, "boot"},
		{"two", first, "boot"},
		{"", first, "boot"},
		{"\n", "pid:[1]", "boot"},
		{"uninitialized\n", "pid:[2]", "boot"},
		{"", "pid:[1]", "other"},
	} {
		labels[k8s.DigestOwner("sandbox@sandbox", machine[0], machine[1], machine[2])] = true
	}
	if len(labels) != 6 {
		t.Errorf("6 owners have %d labels", len(labels))
	}
	if k8s.DigestOwner("a", "one", first, "boot") != k8s.DigestOwner("a", "one", "pid:[1]", "other") ||
		k8s.DigestOwner("a", "", first, "boot") != k8s.DigestOwner("a", "", first, "other") {
		t.Error("a machine has another owner after it restarts")
	}
}
