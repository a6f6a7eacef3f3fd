package k8s

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sandboxagent/sandboxagent/env/remote"
)

// Names in the pod.
const (
	// sandboxName is the container of commands, and installName the one that installs the helper.
	sandboxName = "sandbox"
	installName = "sandboxagent-install"
	// fillName is the container in which Config.Fill writes.
	fillName = "sandboxagent-fill"
	// volumeWork, volumeHome, volumeTemp and volumeHelper are volumes.
	volumeWork   = "sandboxagent-work"
	volumeHome   = "sandboxagent-home"
	volumeTemp   = "sandboxagent-tmp"
	volumeHelper = "sandboxagent-helper"
	// ownDir is a directory on a volume that belongs to the user; the volume itself belongs to root.
	ownDir = "own"

	programPath = programDir + "/sandboxd"
	// socketPrefix is the start of the helper's abstract socket; the name of the pod follows. In the
	// network of a node other helpers have theirs.
	socketPrefix = "@"

	// helperSize bounds the helper's volume. A program that is its own helper can be large.
	helperSize = 160 << 20
)

// installScript makes the user's directories in the volumes $1 and $2, and waits for the helper. A
// client that dies before it delivers would let it wait for the deadline of the pod, so it ends
// after $3 seconds. As PID 1 it obeys only signals that it traps.
const installScript = `mkdir "$1/own" "$2/own" || exit
trap 'exit 1' TERM
trap 'exit 0' USR1
sleep "$3" & wait $! || exit
exit 1
`

// deliverScript runs beside installScript. It prints the platform of the node, reads the helper's
// size and the helper, installs it in the volume $1, and ends the container. It reads no byte too
// many, for read takes single ones. A broken delivery leaves an empty part.
const deliverScript = `set -e
uname -sm
read -r size
part="$1/part.$$"
head -c "$size" >"$part" || { code=$?; : >"$part"; exit $code; }
got=$(wc -c <"$part")
[ "$got" -eq "$size" ] || { : >"$part"; exit 1; }
chmod 111 "$part"
mv -f "$part" "$1/sandboxd"
echo installed
while kill -USR1 1; do sleep 1; done
`

// The mount points of volumes in the container that installs the helper.
const (
	workPath   = "/work"
	homePath   = "/home"
	helperPath = "/helper"
)

// installDir returns the directory of a mount point.
func installDir(path string) string { return programDir + path }

// pod returns the pod of an environment. The template has been checked.
func (c Config) pod(p *remote.Program) (*corev1.Pod, error) {
	pod, err := c.template()
	if err != nil {
		return nil, err
	}
	pod.Name = namePrefix + c.Session
	uid, gid := c.ids()
	deadline := int64(math.Ceil(c.Deadline.Seconds()))
	s := &pod.Spec
	s.RestartPolicy = corev1.RestartPolicyNever
	setDefault(&s.AutomountServiceAccountToken, false)
	setDefault(&s.EnableServiceLinks, false)
	s.ActiveDeadlineSeconds = &deadline
	s.TerminationGracePeriodSeconds = new(int64(1)) // the helper ignores SIGTERM
	if s.Hostname == "" {
		s.Hostname = sandboxName
	}
	if c.RuntimeClass != "" {
		s.RuntimeClassName = &c.RuntimeClass
	}
	if s.SecurityContext == nil {
		s.SecurityContext = &corev1.PodSecurityContext{}
	}
	setDefault(&s.SecurityContext.RunAsUser, uid)
	setDefault(&s.SecurityContext.RunAsGroup, gid)
	if len(s.Volumes) > 0 { // which may belong to root
		setDefault(&s.SecurityContext.FSGroup, gid)
		setDefault(&s.SecurityContext.FSGroupChangePolicy, corev1.FSGroupChangeOnRootMismatch)
	}
	setDefault(&s.SecurityContext.RunAsNonRoot, true)
	setDefault(&s.SecurityContext.SeccompProfile, corev1.SeccompProfile{
		Type: corev1.SeccompProfileTypeRuntimeDefault,
	})
	c.addSandbox(s, p)
	for i := range s.InitContainers {
		harden(&s.InitContainers[i])
	}
	c.addInstaller(s)
	c.addVolumes(s)
	return pod, nil
}

// setDefault sets a field that the template has not set.
func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// harden gives a container the security context of the profile, where it has none. If it fails, the
// end of its output is a part of its state.
func harden(k *corev1.Container) {
	k.TerminationMessagePolicy = cmp.Or(k.TerminationMessagePolicy,
		corev1.TerminationMessageFallbackToLogsOnError)
	if k.SecurityContext == nil {
		k.SecurityContext = &corev1.SecurityContext{}
	}
	setDefault(&k.SecurityContext.AllowPrivilegeEscalation, false)
	setDefault(&k.SecurityContext.ReadOnlyRootFilesystem, true)
	setDefault(&k.SecurityContext.Capabilities, corev1.Capabilities{
		Drop: []corev1.Capability{"ALL"},
	})
}

// addSandbox completes or adds the container of commands. The others of the template become
// sidecars, which start before it, and which do not keep the pod from completing.
func (c Config) addSandbox(s *corev1.PodSpec, p *remote.Program) {
	k := corev1.Container{Name: sandboxName}
	for _, other := range s.Containers {
		if other.Name == sandboxName {
			k = other
			continue
		}
		other.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		s.InitContainers = append(s.InitContainers, other)
	}
	k.Image, k.ImagePullPolicy = c.Image, c.PullPolicy()
	k.Command = append(p.Serve(programPath, socketPrefix+namePrefix+c.Session, c.TTL), "--no-stdio")
	k.WorkingDir = "/"
	k.Resources = c.resources(k.Resources)
	work := corev1.VolumeMount{Name: volumeWork, MountPath: c.WorkDir, SubPath: ownDir}
	others := []corev1.VolumeMount{
		{Name: volumeHelper, MountPath: programDir, ReadOnly: true},
		{Name: volumeHome, MountPath: homeDir, SubPath: ownDir},
		{Name: volumeTemp, MountPath: tempDir},
	}
	if c.Fill != nil {
		fill := corev1.Container{
			Name: fillName, Image: k.Image, ImagePullPolicy: k.ImagePullPolicy, Command: k.Command,
			WorkingDir: k.WorkingDir, Resources: c.resources(corev1.ResourceRequirements{}),
			VolumeMounts: append(slices.Clone(others), work),
		}
		harden(&fill)
		s.InitContainers = append([]corev1.Container{fill}, s.InitContainers...)
		for i := range k.VolumeMounts {
			k.VolumeMounts[i].ReadOnly = true
		}
		work.ReadOnly = true
	}
	k.VolumeMounts = slices.Concat(k.VolumeMounts, others, []corev1.VolumeMount{work})
	harden(&k)
	s.Containers = []corev1.Container{k}
}

// addInstaller adds the container that installs the helper and makes the user's directories, as the
// first init container.
func (c Config) addInstaller(s *corev1.PodSpec) {
	k := corev1.Container{
		Name: installName, Image: c.Image, ImagePullPolicy: c.PullPolicy(), WorkingDir: "/",
		Command: []string{
			"sh", "-c", installScript, "sh", installDir(workPath), installDir(homePath),
			strconv.Itoa(int(c.StartTimeout.Seconds()) + 1),
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeHelper, MountPath: installDir(helperPath)},
			{Name: volumeWork, MountPath: installDir(workPath)},
			{Name: volumeHome, MountPath: installDir(homePath)},
		},
	}
	if c.HelperImage != "" {
		k.Image, k.Command = c.HelperImage, nil // the image's
		k.Args = []string{
			"install", installDir(helperPath) + "/sandboxd", installDir(workPath) + "/" + ownDir,
			installDir(homePath) + "/" + ownDir,
		}
	}
	k.Resources = c.resources(corev1.ResourceRequirements{})
	harden(&k)
	s.InitContainers = append([]corev1.Container{k}, s.InitContainers...)
}

// addVolumes adds the volumes of the two containers, and bounds those of the template.
func (c Config) addVolumes(s *corev1.PodSpec) {
	for _, v := range s.Volumes {
		if v.EmptyDir != nil {
			setDefault(&v.EmptyDir.SizeLimit, *resource.NewQuantity(c.Disk, resource.BinarySI))
		}
	}
	for _, v := range []struct {
		name string
		size int64
	}{
		{volumeHelper, helperSize}, {volumeWork, c.Disk}, {volumeHome, c.Disk}, {volumeTemp, c.Disk},
	} {
		s.Volumes = append(s.Volumes, corev1.Volume{
			Name: v.name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
				SizeLimit: resource.NewQuantity(v.size, resource.BinarySI),
			}},
		})
	}
}

// resources adds the limits to those of the template, which are those of other resources.
func (c Config) resources(r corev1.ResourceRequirements) corev1.ResourceRequirements {
	all := corev1.ResourceList{}
	maps.Copy(all, r.Requests)
	maps.Copy(all, r.Limits)
	all[corev1.ResourceCPU] = *resource.NewMilliQuantity(int64(math.Ceil(c.CPUs*1000)),
		resource.DecimalSI)
	all[corev1.ResourceMemory] = *resource.NewQuantity(c.Memory, resource.BinarySI)
	all[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(c.Disk, resource.BinarySI)
	r.Limits, r.Requests = all, all
	return r
}

// PullPolicy returns Pull in the words of the cluster.
func (c Config) PullPolicy() corev1.PullPolicy {
	switch c.Pull {
	case PullAlways:
		return corev1.PullAlways
	case PullNever:
		return corev1.PullNever
	case PullMissing:
	}
	return corev1.PullIfNotPresent
}

// fullName returns the name of a pod with its namespace.
func fullName(namespace, name string) string { return fmt.Sprintf("%s/%s", namespace, name) }
