package k8s

import (
	"bytes"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/sandboxagent/sandboxagent/internal/shorten"
)

// maxTemplate bounds Config.Template, in bytes.
const maxTemplate = 1 << 20

// harmless are the fields that a template may have: their presence does not weaken the profile.
// What is below one of them is harmless, too. Indexes are left out.
var harmless = []string{
	"apiVersion", "kind", "metadata.labels", "metadata.annotations",
	"spec.nodeSelector", "spec.tolerations", "spec.affinity", "spec.topologySpreadConstraints",
	"spec.priorityClassName", "spec.preemptionPolicy", "spec.schedulerName",
	"spec.serviceAccountName", "spec.imagePullSecrets", "spec.runtimeClassName", "spec.overhead",
	"spec.dnsPolicy", "spec.dnsConfig", "spec.resourceClaims", "spec.hostname",
	"spec.volumes.name", "spec.volumes.persistentVolumeClaim", "spec.volumes.configMap",
	"spec.volumes.csi", "spec.volumes.ephemeral", "spec.volumes.emptyDir", "spec.volumes.downwardAPI",
}

// profiles are beginnings of the names of annotations that set profiles of AppArmor and seccomp.
var profiles = []string{
	"container.apparmor.security.beta.kubernetes.io/", "container.seccomp.", "seccomp.",
}

// strong are beginnings of the names of annotations and labels that give other rights: a second
// network, an identity in a cloud.
var strong = []string{
	"k8s.v1.cni.cncf.io/", "v1.multus-cni.io/", "io.kubernetes.cri-o.", "io.katacontainers.",
	"iam.amazonaws.com/", "azure.workload.identity/", "iam.gke.io/", "sidecar.istio.io/",
	"vault.hashicorp.com/", "linkerd.io/", "networking.gke.io/", "aadpodidbinding", "dev.gvisor.",
	"io.kubernetes.cri.",
}

// fixed are fields that other flags set, or on which the helper depends.
var fixed = []string{
	"metadata.name", "metadata.namespace", "spec.restartPolicy", "spec.activeDeadlineSeconds",
	"spec.terminationGracePeriodSeconds", "spec.shareProcessNamespace", "spec.hostPID",
	"spec.ephemeralContainers", "spec.nodeName",
}

// fixedInSandbox are such fields of the container of commands.
var fixedInSandbox = []string{
	"image", "imagePullPolicy", "command", "args", "workingDir", "stdin", "stdinOnce", "tty",
	"restartPolicy", "lifecycle",
}

// harmlessInContainer are such fields of containers and init containers.
var harmlessInContainer = []string{
	"name", "volumeMounts", "volumeDevices", "resources", "env.name", "env.value",
}

// harmlessInSidecar are more such fields, of other containers than that of commands.
var harmlessInSidecar = []string{
	"image", "imagePullPolicy", "command", "args", "workingDir", "restartPolicy",
	"startupProbe.exec", "ports.name", "ports.containerPort", "ports.protocol",
}

// template decodes Template and checks its fields. The result is empty without one.
func (c Config) template() (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if len(c.Template) == 0 {
		return pod, nil
	}
	bad := func(format string, args ...any) (*corev1.Pod, error) {
		return nil, badConfig("pod template", format, args...)
	}
	if len(c.Template) > maxTemplate {
		return bad("more than %d bytes", maxTemplate)
	}
	if documents := bytes.Split(bytes.TrimPrefix(c.Template, []byte("---")), []byte("\n---")); len(
		documents) > 1 {
		return bad("it has %d documents; one pod is wanted", len(documents))
	}
	text, err := yaml.YAMLToJSONStrict(c.Template)
	if err != nil {
		return bad("%s", shorten.Line(err.Error()))
	}
	unknown, err := json.UnmarshalStrict(text, pod)
	if err = errors.Join(append(unknown, err)...); err != nil {
		return bad("%s", shorten.Line(err.Error()))
	}
	var fields map[string]any
	if err := json.UnmarshalCaseSensitivePreserveInts(text, &fields); err != nil {
		return bad("%s", shorten.Line(err.Error()))
	}
	if err := c.checkFields("", fields, fieldIn{}); err != nil {
		return nil, err
	}
	if err := c.checkKeys("metadata.annotations", pod.Annotations); err != nil {
		return nil, err
	}
	if err := c.checkKeys("metadata.labels", pod.Labels); err != nil {
		return nil, err
	}
	return pod, c.checkNames(pod)
}

// SharesFiles reports whether Template lets commands write to a volume that may outlive the pod, or
// that others may have.
func (c Config) SharesFiles() bool {
	pod, err := c.template()
	if err != nil {
		return false // Validate reports it
	}
	shared := make(map[string]bool)
	for _, v := range pod.Spec.Volumes {
		s := v.VolumeSource
		own := s.EmptyDir != nil || s.Ephemeral != nil || s.ConfigMap != nil || s.Secret != nil ||
			s.DownwardAPI != nil || s.Projected != nil
		shared[v.Name] = !own && (s.PersistentVolumeClaim == nil || !s.PersistentVolumeClaim.ReadOnly)
	}
	for _, k := range pod.Spec.Containers {
		if k.Name == sandboxName && (len(k.VolumeDevices) > 0 ||
			slices.ContainsFunc(k.VolumeMounts, func(m corev1.VolumeMount) bool {
				return !m.ReadOnly && shared[m.Name]
			})) {
			return true
		}
	}
	return false
}

// checkNames rejects names of the template that this package uses, and mounts over its own.
func (c Config) checkNames(pod *corev1.Pod) error {
	for _, v := range pod.Spec.Volumes {
		if strings.HasPrefix(v.Name, "sandboxagent-") {
			return badConfig("pod template", "spec.volumes: the name %s is taken", v.Name)
		}
	}
	for _, k := range pod.Spec.InitContainers {
		if k.Name == sandboxName {
			return badConfig("pod template", "spec.initContainers: the name %s is taken", k.Name)
		}
	}
	for _, k := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		if k.Name == installName || k.Name == fillName {
			return badConfig("pod template", "containers: the name %s is taken", k.Name)
		}
		for _, m := range k.VolumeMounts {
			at := path.Clean("/" + m.MountPath)
			taken := at == "/" || at == programDir || strings.HasPrefix(at, programDir+"/") ||
				slices.Contains([]string{c.WorkDir, homeDir, tempDir}, at)
			switch {
			case strings.HasPrefix(m.Name, "sandboxagent-"):
				return badConfig("pod template", "volumeMounts: the volume %s is the helper's", m.Name)
			case k.Name == sandboxName && taken:
				return badConfig("pod template", "volumeMounts: %s is used already", m.MountPath)
			case k.Name == sandboxName && c.Fill != nil && strings.HasPrefix(at, c.WorkDir+"/"):
				return badConfig("pod template", "volumeMounts: %s is in the working directory, which is "+
					"read-only, so that nothing can be mounted there; mount it elsewhere", m.MountPath)
			}
		}
		for _, list := range []corev1.ResourceList{k.Resources.Limits, k.Resources.Requests} {
			for name := range list {
				if k.Name == sandboxName && slices.Contains(limited, name) {
					return badConfig("pod template", "resources: %s cannot be set: a flag sets it", name)
				}
			}
		}
		for _, v := range k.Env {
			if k.Name == sandboxName && strings.HasPrefix(v.Name, "KUBERNETES_") {
				return badConfig("pod template", "env: %s is for the probe of the network", v.Name)
			}
		}
	}
	return nil
}

// limited are the resources that fields of Config limit.
var limited = []corev1.ResourceName{
	corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
}

// checkKeys rejects annotations and labels that give rights.
func (c Config) checkKeys(field string, values map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		own := strings.HasPrefix(name, labelPrefix) || name == labelManager
		switch {
		case own:
			return badConfig("pod template", "%s: the name %s is taken", field, name)
		case isStrong(name, values[name]) && !allows(c.AllowFields, field):
			return podFieldError("pod template", field+" "+name)
		}
	}
	return nil
}

// switches are beginnings of the names of those whose value can take rights away, too.
var switches = []string{
	"sidecar.istio.io/", "linkerd.io/", "vault.hashicorp.com/", "azure.workload.identity/",
}

// isStrong reports whether an annotation or a label gives rights. Those of plugins for the node
// resource interface give devices, mounts and networks.
func isStrong(name, value string) bool {
	domain, _, _ := strings.Cut(name, "/")
	off := (value == "false" || value == "disabled") && hasPrefix(name, switches)
	return !off &&
		(hasPrefix(name, profiles) || hasPrefix(name, strong) ||
			strings.HasSuffix("."+domain, ".nri.io") || strings.HasSuffix("."+domain, ".nri.containerd.io"))
}

// hasPrefix reports whether a name begins with one of list.
func hasPrefix(name string, list []string) bool {
	return slices.ContainsFunc(list, func(begin string) bool { return strings.HasPrefix(name, begin) })
}

// podFieldError returns the error for what could weaken the sandbox, in a field of Config.
func podFieldError(in, what string) error {
	return &ConfigError{
		Backend: backend, Field: in, Err: ErrPodField,
		Reason: what + " could weaken the sandbox; allow it by name if that is wanted",
	}
}

// fieldIn is where a field of a template is.
type fieldIn struct {
	// sidecar: below a container that is not that of commands.
	sidecar bool
	// allowed: below a field that a template may have.
	allowed bool
}

// checkFields rejects the first field that cannot be set or could weaken the profile.
func (c Config) checkFields(field string, value any, at fieldIn) error {
	in, ok := strings.CutPrefix(field, "spec.containers.")
	if allows(fixed, field) || ok && !at.sidecar && allows(fixedInSandbox, in) {
		return badConfig("pod template", "%s cannot be set: a flag sets it, or the helper depends on it",
			field)
	}
	at.allowed = at.allowed || allows(c.AllowFields, field) || allows(harmless, field) ||
		allowsInContainer(field, at.sidecar)
	switch v := value.(type) {
	case map[string]any:
		if field == "spec.containers" || field == "spec.initContainers" {
			at.sidecar = v["name"] != sandboxName
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			below := strings.TrimPrefix(field+"."+name, ".")
			if err := c.checkFields(below, v[name], at); err != nil {
				return err
			}
		}
		if len(v) > 0 {
			return nil
		}
	case []any:
		for _, element := range v {
			if err := c.checkFields(field, element, at); err != nil {
				return err
			}
		}
		return nil
	}
	if field == "" || at.allowed {
		return nil
	}
	return podFieldError("pod template", field)
}

// allowsInContainer reports whether a field of a container is harmless.
func allowsInContainer(name string, sidecar bool) bool {
	for _, list := range []string{"spec.containers.", "spec.initContainers."} {
		if field, ok := strings.CutPrefix(name, list); ok {
			return allows(harmlessInContainer, field) || sidecar && allows(harmlessInSidecar, field)
		}
	}
	return false
}

// allows reports whether a list has a field or one above it.
func allows(list []string, name string) bool {
	return slices.ContainsFunc(list, func(allowed string) bool {
		return name == allowed || strings.HasPrefix(name, allowed+".")
	})
}
