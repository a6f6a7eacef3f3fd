package k8s_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/sandboxagent/sandboxagent/env/k8s"
)

// TestAdmission has a cluster that weakens pods.
func TestAdmission(t *testing.T) {
	t.Parallel()
	asked := k8s.PodOf(t, config(t, k8s.Config{}))
	for field, change := range map[string]func(*corev1.PodSpec){
		"spec.hostNetwork": func(s *corev1.PodSpec) { s.HostNetwork = true },
		"spec.hostPID":     func(s *corev1.PodSpec) { s.HostPID = true },
		"spec.automountServiceAccountToken": func(s *corev1.PodSpec) {
			s.AutomountServiceAccountToken = new(true)
		},
		"spec.securityContext": func(s *corev1.PodSpec) { s.SecurityContext.RunAsUser = new(int64(0)) },
		"spec.containers": func(s *corev1.PodSpec) {
			s.Containers = append(s.Containers, corev1.Container{Name: "proxy"})
		},
		"spec.initContainers": func(s *corev1.PodSpec) {
			s.InitContainers[0].SecurityContext.Privileged = new(true)
		},
		"spec.volumes": func(s *corev1.PodSpec) {
			s.Volumes = append(s.Volumes, corev1.Volume{Name: "token"})
		},
		"spec.volumes ": func(s *corev1.PodSpec) {
			s.Volumes[0].VolumeSource = corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/"},
			}
		},
		"spec.volumes  ": func(s *corev1.PodSpec) { s.Volumes[0].EmptyDir.SizeLimit = nil },
		"spec.containers ": func(s *corev1.PodSpec) {
			s.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{}}
		},
		"spec.containers  ": func(s *corev1.PodSpec) {
			delete(s.Containers[0].Resources.Limits, corev1.ResourceMemory)
		},
		"spec.containers   ": func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext.RunAsGroup = new(int64(0))
		},
		"spec.containers    ": func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{
				Type: corev1.AppArmorProfileTypeUnconfined,
			}
		},
		"spec.containers     ": func(s *corev1.PodSpec) {
			s.Containers[0].Env = append(s.Containers[0].Env, corev1.EnvVar{
				Name: "KEY", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}},
			})
		},
		"spec.securityContext  ": func(s *corev1.PodSpec) {
			s.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Type: "spc_t"}
		},
		"spec.restartPolicy": func(s *corev1.PodSpec) {
			s.RestartPolicy = corev1.RestartPolicyAlways
		},
		"spec.activeDeadlineSeconds": func(s *corev1.PodSpec) { s.ActiveDeadlineSeconds = nil },
		"spec.serviceAccountName":    func(s *corev1.PodSpec) { s.ServiceAccountName = "admin" },
		"spec.securityContext ": func(s *corev1.PodSpec) {
			s.SecurityContext.SupplementalGroups = []int64{0}
		},
		"spec.securityContext   ": func(s *corev1.PodSpec) {
			s.SecurityContext.FSGroup = new(int64(0))
		},
		"spec.resourceClaims": func(s *corev1.PodSpec) {
			s.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}}
		},
		" spec.containers": func(s *corev1.PodSpec) {
			s.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 80}}
		},
		"  spec.containers": func(s *corev1.PodSpec) {
			s.Containers[0].ReadinessProbe = &corev1.Probe{
				ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh"}}},
			}
		},
		"   spec.containers": func(s *corev1.PodSpec) {
			s.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{}}}
		},
		"spec.hostIPC":               func(s *corev1.PodSpec) { s.HostIPC = true },
		"spec.shareProcessNamespace": func(s *corev1.PodSpec) { s.ShareProcessNamespace = new(true) },
		"spec.securityContext    ": func(s *corev1.PodSpec) {
			s.SecurityContext.SeccompProfile.Type = corev1.SeccompProfileTypeUnconfined
		},
		"spec.securityContext     ": func(s *corev1.PodSpec) {
			s.SecurityContext.RunAsNonRoot = new(false)
		},
		"spec.securityContext      ": func(s *corev1.PodSpec) {
			s.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "x", Value: "y"}}
		},
	} {
		field = strings.TrimSpace(field)
		got := asked.DeepCopy()
		change(&got.Spec)
		err := k8s.CheckAdmitted(k8s.Config{}, asked, got)
		if !errors.Is(err, k8s.ErrPodField) || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
		if err := k8s.CheckAdmitted(k8s.Config{AllowFields: []string{field}}, asked, got); err != nil {
			t.Errorf("%s is allowed: %v", field, err)
		}
	}
	for _, v := range []corev1.VolumeSource{
		{CSI: &corev1.CSIVolumeSource{Driver: "d"}},
		{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}},
		{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{{
			Path: "x", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"},
		}}}},
		{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{},
		}},
		{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "x"},
		}}}},
	} {
		asked.Spec.Volumes = append(asked.Spec.Volumes, corev1.Volume{
			Name: fmt.Sprint(len(asked.Spec.Volumes)), VolumeSource: v,
		})
	}
	asked.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "POD", ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"},
	}}}
	completed := asked.DeepCopy()
	volumes := completed.Spec.Volumes[len(completed.Spec.Volumes)-4:]
	volumes[0].HostPath.Type = new(corev1.HostPathUnset)
	volumes[1].DownwardAPI.DefaultMode = new(corev1.DownwardAPIVolumeSourceDefaultMode)
	volumes[1].DownwardAPI.Items[0].FieldRef.APIVersion = "v1"
	volumes[2].Ephemeral.VolumeClaimTemplate.Spec.VolumeMode = new(corev1.PersistentVolumeFilesystem)
	volumes[3].Projected.Sources[0].ServiceAccountToken.ExpirationSeconds = new(int64(3600))
	completed.Spec.Containers[0].Env[0].ValueFrom.FieldRef.APIVersion = "v1"
	completed.Spec.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0:c26,c5"}
	completed.Spec.SecurityContext.AppArmorProfile = &corev1.AppArmorProfile{
		Type: corev1.AppArmorProfileTypeRuntimeDefault,
	}
	completed.Spec.Containers[0].Env = append(completed.Spec.Containers[0].Env,
		corev1.EnvVar{Name: "HTTPS_PROXY", Value: "http://proxy"})
	for _, got := range []*corev1.Pod{asked.DeepCopy(), completed} {
		if err := k8s.CheckAdmitted(k8s.Config{}, asked, got); err != nil {
			t.Error(err)
		}
	}
}

// TestAdmittedContainers has a cluster that changes the container of commands.
func TestAdmittedContainers(t *testing.T) {
	t.Parallel()
	type security = corev1.SecurityContext
	asked := k8s.PodOf(t, config(t, k8s.Config{}))
	probe := corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"sh"}}},
	}
	for name, change := range map[string]func(*corev1.Container, *security){
		"command":   func(k *corev1.Container, _ *security) { k.Command = []string{"x"} },
		"arguments": func(k *corev1.Container, _ *security) { k.Args = []string{"x"} },
		"stdin":     func(k *corev1.Container, _ *security) { k.Stdin = true },
		"mount": func(k *corev1.Container, _ *security) {
			k.VolumeMounts = append(k.VolumeMounts, corev1.VolumeMount{Name: "x", MountPath: "/x"})
		},
		"device": func(k *corev1.Container, _ *security) {
			k.VolumeDevices = []corev1.VolumeDevice{{Name: "x", DevicePath: "/dev/x"}}
		},
		"claim": func(k *corev1.Container, _ *security) {
			k.Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
		},
		"liveness":   func(k *corev1.Container, _ *security) { k.LivenessProbe = &probe },
		"startup":    func(k *corev1.Container, _ *security) { k.StartupProbe = &probe },
		"escalation": func(_ *corev1.Container, s *security) { s.AllowPrivilegeEscalation = nil },
		"root":       func(_ *corev1.Container, s *security) { s.ReadOnlyRootFilesystem = nil },
		"capabilities": func(_ *corev1.Container, s *security) {
			s.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
		},
		"user":    func(_ *corev1.Container, s *security) { s.RunAsUser = new(int64(0)) },
		"no root": func(_ *corev1.Container, s *security) { s.RunAsNonRoot = new(false) },
		"seccomp": func(_ *corev1.Container, s *security) {
			s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
		},
		"proc": func(_ *corev1.Container, s *security) {
			s.ProcMount = new(corev1.UnmaskedProcMount)
		},
		"privileged": func(_ *corev1.Container, s *security) { s.Privileged = new(true) },
	} {
		got := asked.DeepCopy()
		change(&got.Spec.Containers[0], got.Spec.Containers[0].SecurityContext)
		err := k8s.CheckAdmitted(k8s.Config{}, asked, got)
		if !errors.Is(err, k8s.ErrPodField) || !strings.Contains(err.Error(), "spec.containers") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAdmittedAnnotations has a cluster that adds annotations and labels.
func TestAdmittedAnnotations(t *testing.T) {
	t.Parallel()
	asked := k8s.PodOf(t, config(t, k8s.Config{}))
	for of, ok := range map[string]bool{
		"k8s.v1.cni.cncf.io/networks=x": false, "mounts.nri.io/pod=x": false,
		"container.apparmor.security.beta.kubernetes.io/sandbox=unconfined": false,
		"dev.gvisor.internal.seccomp.sandbox=Unconfined":                    false,
		"kubernetes.io/psp=x": true,
		"seccomp.security.alpha.kubernetes.io/pod=runtime/default": true,
		"dev.gvisor.internal.seccomp.sandbox=RuntimeDefault":       true,
		"dev.gvisor.spec.mount.work.type=tmpfs":                    true,
	} {
		name, value, _ := strings.Cut(of, "=")
		for field, add := range map[string]func(*corev1.Pod){
			"metadata.annotations": func(p *corev1.Pod) { p.Annotations = map[string]string{name: value} },
			"metadata.labels":      func(p *corev1.Pod) { p.Labels = map[string]string{name: value} },
		} {
			got := asked.DeepCopy()
			add(got)
			err := k8s.CheckAdmitted(k8s.Config{}, asked, got)
			if errors.Is(err, k8s.ErrPodField) == ok || !ok && !strings.Contains(err.Error(), field) {
				t.Errorf("%s in %s: %v", of, field, err)
			}
			allowed := k8s.Config{AllowFields: []string{field}}
			if err := k8s.CheckAdmitted(allowed, asked, got); err != nil {
				t.Errorf("%s in %s is allowed: %v", of, field, err)
			}
		}
	}
}
