package k8s

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandboxagent/sandboxagent/internal/shorten"
)

// exitTimeout bounds the wait for the state of a container that has ended.
const exitTimeout = 3 * time.Second

// findStatus returns the status of a container; the zero value without one.
func findStatus(list []corev1.ContainerStatus, name string) corev1.ContainerStatus {
	for _, s := range list {
		if s.Name == name {
			return s
		}
	}
	return corev1.ContainerStatus{}
}

// isInstalling reports whether the container that installs the helper runs, and isInstalled whether
// it has done so.
func isInstalling(o *observed) bool { return o.runs(installName) }

func isInstalled(o *observed) bool { return o.hasSucceeded(installName) }

// isFilling reports whether the container for Config.Fill runs, and isFilled whether it has ended.
func isFilling(o *observed) bool { return o.runs(fillName) }

func isFilled(o *observed) bool { return o.hasSucceeded(fillName) }

// isServing reports whether the container of commands runs.
func isServing(o *observed) bool { return o.runs(sandboxName) }

// never is for a container that does not end while its pod starts.
func never(*observed) bool { return false }

// hasEnded reports whether the container with the helper, or the pod, has ended. A kubelet reports
// a start up to a second late, so a container without a state may run.
func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
		findStatus(pod.Status.ContainerStatuses, sandboxName).State.Terminated != nil
}

// isSilent reports whether the node of a pod has ceased to report. The cluster then sets the pod's
// condition without a reason, which a kubelet always gives.
func isSilent(pod *corev1.Pod) bool {
	for _, k := range pod.Status.Conditions {
		if k.Type == corev1.PodReady {
			return k.Status == corev1.ConditionFalse && k.Reason == ""
		}
	}
	return false
}

// hopeless are reasons of containers that wait without hope. A failed pull is one after the first
// repetition.
var hopeless = []string{
	"InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "CreateContainerConfigError",
	"CreateContainerError", "RunContainerError", "ImagePullBackOff", "CrashLoopBackOff",
}

// startFailure returns why a pod will not start; nil if it may.
func startFailure(pod *corev1.Pod) error {
	if hasEnded(pod) {
		return endedEarly(pod)
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if t := s.State.Terminated; t != nil && t.ExitCode != 0 && !restarts(pod, s.Name) {
			return containerFailure(s.Name, t)
		}
		w := s.State.Waiting
		if w == nil || !slices.Contains(hopeless, w.Reason) || isBusy(w) {
			continue
		}
		err := fmt.Errorf("the image %s: %s: %s", s.Image, w.Reason, shorten.Line(w.Message))
		if s.Name == installName && lacksShell(w.Reason, w.Message, 0) {
			err = fmt.Errorf("%w: %w", ErrNoShell, err)
		}
		return err
	}
	return nil
}

// restarts reports whether a container is a sidecar that is started again.
func restarts(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(k corev1.Container) bool {
		return k.Name == name && k.RestartPolicy != nil &&
			*k.RestartPolicy == corev1.ContainerRestartPolicyAlways
	})
}

// isBusy reports whether a container waits for a runtime with too much to do, which is asked again.
func isBusy(w *corev1.ContainerStateWaiting) bool {
	return slices.Contains([]string{"CreateContainerError", "RunContainerError"}, w.Reason) &&
		(strings.Contains(w.Message, "context deadline exceeded") ||
			strings.Contains(w.Message, "is reserved for")) // by the call that took too long
}

// lacksShell reports whether the container that installs the helper failed for lack of a program.
// The runtimes have different messages; that of a program that failed is its own output.
func lacksShell(reason, message string, exitCode int32) bool {
	if reason == "Error" {
		return exitCode == 127 ||
			strings.Contains(message, "executable file") && strings.Contains(message, "not found")
	}
	return exitCode == 127 || strings.Contains(message, "executable") ||
		strings.Contains(message, "no such file") &&
			!strings.Contains(message, "/proc/") // of the runtime's own processes
}

// endedEarly returns the error of a pod that has ended before it was ready.
func endedEarly(pod *corev1.Pod) error {
	if pod.Status.Reason != "" { // such as the pressure of its node
		return fmt.Errorf("it has ended: %s: %s", pod.Status.Reason, shorten.Line(pod.Status.Message))
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if t := s.State.Terminated; t != nil && (t.ExitCode != 0 || s.Name == sandboxName) {
			return containerFailure(s.Name, t)
		}
	}
	return fmt.Errorf("it has ended: %s", shorten.Line(pod.Status.Message))
}

// maxMessage bounds the output of a container in an error, in bytes: its end.
const maxMessage = 512

// containerFailure returns the error of a container that has ended.
func containerFailure(name string, t *corev1.ContainerStateTerminated) error {
	text := fmt.Sprintf("the container %s has ended: %s, exit code %d", name, t.Reason, t.ExitCode)
	if t.Message != "" {
		message := shorten.Line(t.Message)
		text += ": " + strings.ToValidUTF8(message[max(0, len(message)-maxMessage):], "")
	}
	if name == installName && lacksShell(t.Reason, t.Message, t.ExitCode) {
		return fmt.Errorf("%w: %s", ErrNoShell, text)
	}
	return errors.New(text)
}

// waitReason returns what a pod waits for, in the words of the cluster; empty if that is unknown.
func waitReason(pod *corev1.Pod) string {
	for _, k := range pod.Status.Conditions {
		if k.Type == corev1.PodScheduled && k.Status == corev1.ConditionFalse {
			return fmt.Sprintf("%s: %s", k.Reason, shorten.Line(k.Message))
		}
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" {
			return strings.TrimSuffix(fmt.Sprintf("the container %s waits: %s: %s", s.Name, w.Reason,
				shorten.Line(w.Message)), ": ")
		}
	}
	return ""
}

// gone returns the *GoneError of a pod that has ended or was deleted. Its last known state may be
// nil.
func (h *handle) gone(pod *corev1.Pod, deleted bool) error {
	g := &GoneError{Pod: fullName(h.cluster.namespace, h.name), Reason: ReasonEnded}
	if pod == nil {
		g.Reason = ReasonDeleted
		return g
	}
	t := findStatus(pod.Status.ContainerStatuses, sandboxName).State.Terminated
	switch disruption := disruptionOf(pod); {
	case t != nil && t.Reason == "OOMKilled":
		g.Reason, g.Detail = ReasonOutOfMemory, "the memory limit is too low, or commands use too much"
	case slices.Contains([]string{"NodeLost", "NodeShutdown", "Shutdown", "Terminated"},
		pod.Status.Reason):
		g.Reason, g.Detail = ReasonNode, shorten.Line(pod.Status.Message)
	case disruption != nil:
		g.Reason, g.Detail = disruptions[disruption.Reason], shorten.Line(disruption.Message)
		if pod.Status.Message != "" {
			g.Detail = shorten.Line(pod.Status.Message)
		}
		if g.Reason == "" {
			g.Reason = ReasonEvicted
		}
	case pod.Status.Reason == "Evicted":
		g.Reason, g.Detail = ReasonEvicted, shorten.Line(pod.Status.Message)
	case pod.Status.Reason == "DeadlineExceeded":
		g.Reason, g.Detail = ReasonDeadline, shorten.Line(pod.Status.Message)
	case deleted || pod.DeletionTimestamp != nil:
		g.Reason = ReasonDeleted
	case t != nil && t.ExitCode == 0:
		g.Detail = "it had no client for its TTL, or another client has closed it"
	case t != nil:
		g.Detail = fmt.Sprintf("exit code %d", t.ExitCode)
	}
	return g
}

// disruptions are the reasons of the condition DisruptionTarget.
var disruptions = map[string]Reason{
	"PreemptionByScheduler": ReasonPreempted, "EvictionByEvictionAPI": ReasonEvicted,
	"DeletionByTaintManager": ReasonNode, "DeletionByPodGC": ReasonNode,
	"TerminationByKubelet": ReasonEvicted,
}

// disruptionOf returns the condition that explains the end of a pod; nil without one.
func disruptionOf(pod *corev1.Pod) *corev1.PodCondition {
	for i, k := range pod.Status.Conditions {
		if k.Type == corev1.DisruptionTarget && k.Status == corev1.ConditionTrue {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}
