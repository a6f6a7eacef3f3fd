package k8s

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// checkAdmitted rejects a pod that the cluster has weakened: its admission may change what it was
// asked for. A field that Config.AllowFields has may differ.
func (c Config) checkAdmitted(asked, got *corev1.Pod) error {
	a, g := &asked.Spec, &got.Spec
	same := map[string]bool{
		"spec.hostNetwork":           a.HostNetwork == g.HostNetwork,
		"spec.hostPID":               a.HostPID == g.HostPID,
		"spec.hostIPC":               a.HostIPC == g.HostIPC,
		"spec.shareProcessNamespace": g.ShareProcessNamespace == nil || !*g.ShareProcessNamespace,
		"spec.automountServiceAccountToken": equality.Semantic.DeepEqual(
			a.AutomountServiceAccountToken, g.AutomountServiceAccountToken),
		"spec.runtimeClassName": a.RuntimeClassName == nil ||
			equality.Semantic.DeepEqual(a.RuntimeClassName, g.RuntimeClassName),
		"spec.restartPolicy": a.RestartPolicy == g.RestartPolicy,
		"spec.activeDeadlineSeconds": a.ActiveDeadlineSeconds == nil ||
			g.ActiveDeadlineSeconds != nil && *g.ActiveDeadlineSeconds <= *a.ActiveDeadlineSeconds,
		"spec.hostUsers": a.HostUsers == nil || equality.Semantic.DeepEqual(a.HostUsers, g.HostUsers),
		"spec.serviceAccountName": a.ServiceAccountName == g.ServiceAccountName ||
			a.ServiceAccountName == "" && g.ServiceAccountName == "default",
		"spec.securityContext": g.SecurityContext != nil && equality.Semantic.DeepEqual(
			ids(a.SecurityContext), ids(g.SecurityContext)) &&
			(!isRoot(g.SecurityContext.FSGroup) || isRoot(a.SecurityContext.FSGroup)) &&
			sameProfiles(a.SecurityContext.AppArmorProfile, g.SecurityContext.AppArmorProfile,
				a.SecurityContext.SELinuxOptions, g.SecurityContext.SELinuxOptions),
		"spec.resourceClaims": equality.Semantic.DeepEqual(a.ResourceClaims, g.ResourceClaims),
		"spec.containers":     sameContainers(a.Containers, g.Containers, a.HostNetwork),
		"spec.initContainers": sameContainers(a.InitContainers, g.InitContainers, a.HostNetwork),
		"spec.volumes":        sameVolumes(a.Volumes, g.Volumes),
	}
	same["metadata.annotations"] = !hasMoreRights(asked.Annotations, got.Annotations)
	same["metadata.labels"] = !hasMoreRights(asked.Labels, got.Labels)
	for _, field := range slices.Sorted(maps.Keys(same)) {
		if !same[field] && !allows(c.AllowFields, field) {
			return &ConfigError{
				Backend: backend, Field: "pod", Err: ErrPodField,
				Reason: "the cluster has changed " + field + ", which could weaken the sandbox; allow it by " +
					"name if that is wanted",
			}
		}
	}
	return nil
}

// hasMoreRights reports whether annotations or labels give rights that were not asked for. Those
// that a cluster sets to what the fields have are left out: the default profiles, and those of GKE
// for gVisor.
func hasMoreRights(asked, got map[string]string) bool {
	for name, value := range got {
		usual := strings.HasPrefix(name, "dev.gvisor.spec.mount.") ||
			strings.HasPrefix(name, "dev.gvisor.internal.seccomp.") && value == "RuntimeDefault" ||
			hasPrefix(name, profiles) && (value == "runtime/default" || value == "docker/default")
		if asked[name] != value && isStrong(name, value) && !usual {
			return true
		}
	}
	return false
}

// ids are the parts of a security context that matter. A cluster may add others, such as labels.
func ids(s *corev1.PodSecurityContext) [6]any {
	return [6]any{
		s.RunAsUser, s.RunAsGroup, s.RunAsNonRoot, s.SeccompProfile, s.SupplementalGroups, s.Sysctls,
	}
}

func isRoot(id *int64) bool { return id != nil && *id == 0 }

// sameContainers reports whether containers are those that were asked for, in any order.
func sameContainers(asked, got []corev1.Container, hostNetwork bool) bool {
	if len(asked) != len(got) {
		return false
	}
	for _, a := range asked {
		i := slices.IndexFunc(got, func(g corev1.Container) bool { return g.Name == a.Name })
		if i < 0 || !sameContainer(a, got[i]) ||
			hasMorePorts(a.Ports, got[i].Ports, hostNetwork) {
			return false
		}
	}
	return true
}

func sameContainer(a, g corev1.Container) bool {
	s, t := a.SecurityContext, g.SecurityContext
	return t != nil && slices.Equal(a.Command, g.Command) && slices.Equal(a.Args, g.Args) &&
		a.Stdin == g.Stdin && hasLimits(a, g) &&
		equality.Semantic.DeepEqual(a.EnvFrom, g.EnvFrom) &&
		equality.Semantic.DeepEqual(a.Resources.Claims, g.Resources.Claims) &&
		equality.Semantic.DeepEqual(a.VolumeDevices, g.VolumeDevices) &&
		equality.Semantic.DeepEqual(a.VolumeMounts, g.VolumeMounts) &&
		equality.Semantic.DeepEqual(a.Lifecycle, g.Lifecycle) &&
		equality.Semantic.DeepEqual(execOf(a.LivenessProbe), execOf(g.LivenessProbe)) &&
		equality.Semantic.DeepEqual(execOf(a.ReadinessProbe), execOf(g.ReadinessProbe)) &&
		equality.Semantic.DeepEqual(execOf(a.StartupProbe), execOf(g.StartupProbe)) &&
		equality.Semantic.DeepEqual(s.Privileged, t.Privileged) &&
		equality.Semantic.DeepEqual(s.AllowPrivilegeEscalation, t.AllowPrivilegeEscalation) &&
		equality.Semantic.DeepEqual(s.ReadOnlyRootFilesystem, t.ReadOnlyRootFilesystem) &&
		equality.Semantic.DeepEqual(s.Capabilities, t.Capabilities) &&
		equality.Semantic.DeepEqual(s.RunAsUser, t.RunAsUser) &&
		equality.Semantic.DeepEqual(s.RunAsGroup, t.RunAsGroup) &&
		equality.Semantic.DeepEqual(s.RunAsNonRoot, t.RunAsNonRoot) &&
		equality.Semantic.DeepEqual(s.SeccompProfile, t.SeccompProfile) &&
		equality.Semantic.DeepEqual(s.ProcMount, t.ProcMount) &&
		sameProfiles(s.AppArmorProfile, t.AppArmorProfile, s.SELinuxOptions, t.SELinuxOptions) &&
		!hasMoreSecrets(a.Env, g.Env)
}

// sameProfiles reports whether profiles are as strong as those that were asked for. A cluster may
// name AppArmor's profile of the runtime and give a pod a level of SELinux.
func sameProfiles(
	asked, got *corev1.AppArmorProfile, askedLabel, gotLabel *corev1.SELinuxOptions,
) bool {
	var a, g corev1.SELinuxOptions
	if askedLabel != nil {
		a = *askedLabel
	}
	if gotLabel != nil {
		g = *gotLabel
	}
	return (equality.Semantic.DeepEqual(asked, got) ||
		got != nil && got.Type == corev1.AppArmorProfileTypeRuntimeDefault) &&
		a.User == g.User && a.Role == g.Role && a.Type == g.Type
}

// execOf returns the command of a probe; nil without one.
func execOf(p *corev1.Probe) *corev1.ExecAction {
	if p == nil {
		return nil
	}
	return p.Exec
}

// hasMorePorts reports whether a port of the node was not asked for. In the node's network all
// ports are.
func hasMorePorts(asked, got []corev1.ContainerPort, hostNetwork bool) bool {
	return slices.ContainsFunc(got, func(p corev1.ContainerPort) bool {
		return p.HostPort != 0 && !slices.ContainsFunc(asked, func(a corev1.ContainerPort) bool {
			return a.HostPort == p.HostPort || hostNetwork && a.ContainerPort == p.HostPort
		})
	})
}

// hasMoreSecrets reports whether variables have values from somewhere else that were not asked for.
func hasMoreSecrets(asked, got []corev1.EnvVar) bool {
	return slices.ContainsFunc(got, func(v corev1.EnvVar) bool {
		return v.ValueFrom != nil && !slices.ContainsFunc(asked, func(a corev1.EnvVar) bool {
			return equality.Semantic.DeepEqual(complete(a), complete(v))
		})
	})
}

// complete returns a variable with what the API sets in it.
func complete(v corev1.EnvVar) *corev1.EnvVar {
	c := v.DeepCopy()
	if c.ValueFrom != nil {
		completeField(c.ValueFrom.FieldRef)
	}
	return c
}

// completeField sets what the API sets in a field of the pod.
func completeField(f *corev1.ObjectFieldSelector) {
	if f != nil {
		f.APIVersion = cmp.Or(f.APIVersion, "v1")
	}
}

// hasLimits reports whether a container has a limit of each resource that was limited. A cluster
// may change the amounts.
func hasLimits(asked, got corev1.Container) bool {
	for name := range asked.Resources.Limits {
		if _, ok := got.Resources.Limits[name]; !ok {
			return false
		}
	}
	return true
}

// sameVolumes reports whether volumes are those that were asked for, in any order. A cluster may
// complete them by its defaults.
func sameVolumes(asked, got []corev1.Volume) bool {
	if len(asked) != len(got) {
		return false
	}
	for _, a := range asked {
		i := slices.IndexFunc(got, func(g corev1.Volume) bool { return g.Name == a.Name })
		if i < 0 || !equality.Semantic.DeepEqual(source(a), source(got[i])) {
			return false
		}
	}
	return true
}

// source returns the source of a volume without the modes of its files, and with what else the API
// sets where nothing was asked for.
func source(v corev1.Volume) corev1.VolumeSource {
	s := v.DeepCopy().VolumeSource
	if s.ConfigMap != nil {
		s.ConfigMap.DefaultMode = nil
	}
	if s.Secret != nil {
		s.Secret.DefaultMode = nil
	}
	var fields []corev1.DownwardAPIVolumeFile
	if s.DownwardAPI != nil {
		s.DownwardAPI.DefaultMode, fields = nil, s.DownwardAPI.Items
	}
	if s.Projected != nil {
		s.Projected.DefaultMode = nil
		for _, p := range s.Projected.Sources {
			if p.DownwardAPI != nil {
				fields = append(fields, p.DownwardAPI.Items...)
			}
			if p.ServiceAccountToken != nil {
				setDefault(&p.ServiceAccountToken.ExpirationSeconds, 3600)
			}
		}
	}
	for _, f := range fields {
		completeField(f.FieldRef)
	}
	if s.HostPath != nil {
		setDefault(&s.HostPath.Type, corev1.HostPathUnset)
	}
	if s.Ephemeral != nil && s.Ephemeral.VolumeClaimTemplate != nil {
		setDefault(&s.Ephemeral.VolumeClaimTemplate.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	}
	return s
}
