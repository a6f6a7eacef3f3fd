package k8s

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandboxagent/sandboxagent/env/remote"
)

// Labels select pods; annotations describe them.
const (
	labelManager = "app.kubernetes.io/managed-by"
	manager      = "sandboxagent"

	labelPrefix = "sandboxagent/"
	// labelSession is the name of the session.
	labelSession = labelPrefix + "session"
	// labelClient is the connection that created the pod, which watches its pods.
	labelClient = labelPrefix + "client"
	// labelOwner is a digest of the owner.
	labelOwner = labelPrefix + "owner"

	// annotationOwner is the creator, user@machine; annotationProcess identifies its process there.
	annotationOwner   = labelPrefix + "owner"
	annotationProcess = labelPrefix + "process"
	annotationLease   = labelPrefix + "lease"
	// annotationReady is when a pod that has not started is garbage.
	annotationReady = labelPrefix + "start-by"
	// annotationOpen is random: each call of Open has its own.
	annotationOpen = labelPrefix + "open"

	namePrefix = "sandboxagent-"
)

// newName returns a random name of a few letters and digits.
func newName() string { return strings.ToLower(rand.Text()) }

// ownerLabel returns the label of an owner, whose name can have other characters than a label, and
// whose machine can have the name of another one.
func ownerLabel(owner string) string {
	machine, _ := os.ReadFile("/etc/machine-id") // some systems and images have none
	space, _ := os.Readlink("/proc/self/ns/pid")
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return digestOwner(owner, string(machine), space, string(boot))
}

// digestOwner returns different labels for containers whose images name the same user and no
// machine: their PID namespaces are unique while they last.
func digestOwner(owner, machine, space, boot string) string {
	const first = "pid:[4026531836]" // that of the machine
	if m := strings.TrimSpace(machine); (m == "" || m == "uninitialized") && space != first {
		machine = space + "\n" + boot
	}
	sum := sha256.Sum256([]byte(owner + "\n" + machine))
	return hex.EncodeToString(sum[:16])
}

// describe adds the labels, annotations and the owner of a pod.
func (c *Cluster) describe(pod *corev1.Pod, cfg Config) {
	if pod.Labels == nil {
		pod.Labels = make(map[string]string)
	}
	if pod.Annotations == nil {
		pod.Annotations = make(map[string]string)
	}
	owner := remote.Owner()
	maps.Copy(pod.Labels, cfg.Labels)
	maps.Copy(pod.Labels, map[string]string{
		labelManager: manager, labelSession: cfg.Session, labelClient: c.client,
		labelOwner: ownerLabel(owner),
	})
	if p := cfg.Parent; p != (PodID{}) {
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: types.UID(p.UID),
		}}
	}
	maps.Copy(pod.Annotations, map[string]string{
		annotationOwner: owner, annotationProcess: remote.ThisProcess(),
		annotationLease: cfg.TTL.String(),
		annotationReady: readyBy(cfg),
		annotationOpen:  rand.Text(),
	})
}

// readyBy returns the time by which a pod that is created now is ready, or deleted by its client.
func readyBy(cfg Config) string {
	return time.Now().Add(cfg.StartTimeout + cleanupTimeout).UTC().Format(time.RFC3339)
}
