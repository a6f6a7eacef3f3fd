package k8s_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandboxagent/sandboxagent/env/k8s"
)

// TestStates decides whether pods can still start.
func TestStates(t *testing.T) {
	t.Parallel()
	waits := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "sandbox", State: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message},
			},
		}}}
	}
	for want, status := range map[string]corev1.PodStatus{
		"ImagePullBackOff: no such image": waits("ImagePullBackOff", "no such image"),
		"CreateContainerError: bad mount": waits("CreateContainerError", "bad mount"),
		" ":                               waits("CreateContainerError", "context deadline exceeded"),
		"  ":                              waits("CreateContainerError", "the name is reserved for x"),
		"   ":                             waits("ContainerCreating", ""),
		"Evicted: The node was low on resource: memory.": {
			Phase: corev1.PodFailed, Reason: "Evicted",
			Message: "The node was low on resource: memory.",
			InitContainerStatuses: []corev1.ContainerStatus{{
				Name: "sandboxagent-install", State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{ExitCode: 137},
				},
			}},
		},
	} {
		err := k8s.StartFailure(&corev1.Pod{Status: status})
		if want = strings.TrimSpace(want); want == "" && err != nil ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for message, lacks := range map[string]bool{
		`exec: "sh": executable file not found in $PATH`:                  true,
		"exec: /bin/sh: stat /bin/sh: no such file or directory":          true,
		"namespace path: lstat /proc/0/ns/ipc: no such file or directory": false,
	} {
		err := k8s.StartFailure(&corev1.Pod{Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{{
				Name: "sandboxagent-install", State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{
						Reason: "StartError", ExitCode: 128, Message: message,
					},
				},
			}},
		}})
		if err == nil || errors.Is(err, k8s.ErrNoShell) != lacks ||
			!strings.Contains(err.Error(), message) {
			t.Errorf("%s: %v", message, err)
		}
	}
	for message, lacks := range map[string]bool{
		"mkdir: cannot create directory: no such file or directory": false, // of a program
		`exec: "sh": executable file not found in $PATH`:            true,
	} {
		err := k8s.StartFailure(&corev1.Pod{Status: corev1.PodStatus{
			InitContainerStatuses: []corev1.ContainerStatus{{
				Name: "sandboxagent-install", State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{
						Reason: "Error", ExitCode: 1, Message: message,
					},
				},
			}},
		}})
		if err == nil || errors.Is(err, k8s.ErrNoShell) != lacks {
			t.Errorf("%s: %v", message, err)
		}
	}
	failed := corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{{
		Name: "prepare", State: corev1.ContainerState{
			Terminated: &corev1.ContainerStateTerminated{ExitCode: 3},
		},
	}}}
	for _, sidecar := range []bool{false, true} {
		k := corev1.Container{Name: "prepare"}
		if sidecar {
			k.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		err := k8s.StartFailure(&corev1.Pod{
			Spec: corev1.PodSpec{InitContainers: []corev1.Container{k}}, Status: failed,
		})
		if (err == nil) != sidecar {
			t.Errorf("an init container has failed, which is a sidecar: %t: %v", sidecar, err)
		}
	}
}
