package k8s_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/k8s"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// TestTemplateFields has each field of a template decided before anything is sent.
func TestTemplateFields(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, template, want string
		allow                []string
	}{
		{name: "harmless", template: `
metadata: {labels: {a: b}, annotations: {c: d}}
spec:
  nodeSelector: {disk: ssd}
  tolerations: [{key: gpu, operator: Exists}]
  priorityClassName: low
  serviceAccountName: sandbox
  imagePullSecrets: [{name: registry}]
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  - {name: settings, configMap: {name: settings}}
  - {name: certificate, csi: {driver: csi.cert-manager.io, readOnly: true}}
  containers:
  - name: sandbox
    env: [{name: A, value: b}]
    resources: {limits: {nvidia.com/gpu: 1}}
    volumeMounts: [{name: data, mountPath: /data}]
  - {name: proxy, image: proxy, args: [serve], ports: [{containerPort: 80}]}
`},
		{
			name:     "memory",
			template: "spec: {containers: [{name: sandbox, resources: {limits: {memory: 1Gi}}}]}",
			want:     "memory cannot be set: a flag sets it",
		},
		{name: "host network", template: "spec: {hostNetwork: true}", want: "spec.hostNetwork"},
		{name: "host PID", template: "spec: {hostPID: true}", want: "spec.hostPID"},
		{
			name: "shared processes", template: "spec: {shareProcessNamespace: true}",
			want: "spec.shareProcessNamespace",
		},
		{
			name: "token", template: "spec: {automountServiceAccountToken: true}",
			want: "spec.automountServiceAccountToken",
		},
		{
			name: "host path", template: "spec: {volumes: [{name: h, hostPath: {path: /}}]}",
			want: "spec.volumes.hostPath",
		},
		{
			name: "secret", template: "spec: {volumes: [{name: s, secret: {secretName: s}}]}",
			want: "spec.volumes.secret",
		},
		{
			name:     "privileged",
			template: "spec: {containers: [{name: sandbox, securityContext: {privileged: true}}]}",
			want:     "spec.containers.securityContext",
		},
		{
			name:     "privileged sidecar",
			template: "spec: {containers: [{name: x, securityContext: {privileged: true}}]}",
			want:     "spec.containers.securityContext",
		},
		{
			name:     "user",
			template: "spec: {securityContext: {runAsUser: 0}}",
			want:     "spec.securityContext",
		},
		{
			name: "host port", template: "spec: {containers: [{name: x, ports: [{hostPort: 80}]}]}",
			want: "spec.containers.ports.hostPort",
		},
		{
			name:     "secret variable",
			template: "spec: {containers: [{name: x, envFrom: [{secretRef: {name: s}}]}]}",
			want:     "spec.containers.envFrom",
		},
		{
			name: "command", template: "spec: {containers: [{name: sandbox, command: [sh]}]}",
			want: "spec.containers.command",
		},
		{
			name: "image of commands", template: "spec: {containers: [{name: sandbox, image: x}]}",
			want: "spec.containers.image",
		},
		{
			name: "lifetime", template: "spec: {activeDeadlineSeconds: 1}",
			want: "spec.activeDeadlineSeconds cannot be set",
		},
		{
			name: "fixed", template: "spec: {hostPID: true}", allow: []string{"spec.hostPID"},
			want: "spec.hostPID cannot be set",
		},
		{
			name: "helper's volume",
			template: "spec: {containers: [{name: sandbox, volumeMounts: " +
				"[{name: sandboxagent-helper, mountPath: /h}]}]}",
			want: "the volume sandboxagent-helper is the helper's",
		},
		{
			name: "helper's volume in a sidecar",
			template: "spec: {containers: [{name: x, volumeMounts: " +
				"[{name: sandboxagent-helper, mountPath: /h}]}]}",
			want: "the volume sandboxagent-helper is the helper's",
		},
		{
			name: "mount by another name",
			template: "spec: {containers: [{name: sandbox, volumeMounts: " +
				"[{name: x, mountPath: /.sandboxagent//sandboxd}]}]}",
			want: "is used already",
		},
		{
			name:     "mount of the working directory by another name",
			template: "spec: {containers: [{name: sandbox, volumeMounts: [{mountPath: /workspace/.}]}]}",
			want:     "is used already",
		},
		{
			name: "AppArmor", template: "metadata: {annotations: " +
				"{container.apparmor.security.beta.kubernetes.io/sandbox: unconfined}}",
			want: "metadata.annotations container.apparmor",
		},
		{
			name:     "second network",
			template: "metadata: {annotations: {k8s.v1.cni.cncf.io/networks: x}}",
			want:     "metadata.annotations k8s.v1.cni.cncf.io/networks",
		},
		{
			name:     "confinement switched off",
			template: `metadata: {annotations: {io.katacontainers.config.x: "false"}}`,
			want:     "metadata.annotations io.katacontainers.config.x",
		},
		{
			name: "no sidecar of a mesh", template: `metadata: {labels: {sidecar.istio.io/inject: "false"}}`,
		},
		{
			name: "device", template: "metadata: {annotations: {devices.nri.io/container.sandbox: x}}",
			want: "metadata.annotations devices.nri.io/container.sandbox",
		},
		{
			name: "arguments, containers are allowed", allow: []string{"spec.containers"},
			template: "spec: {containers: [{name: sandbox, args: [x]}]}",
			want:     "spec.containers.args cannot be set",
		},
		{
			name: "hook, containers are allowed", allow: []string{"spec.containers"},
			template: "spec: {containers: [{name: sandbox, lifecycle: {preStop: {exec: {}}}}]}",
			want:     "spec.containers.lifecycle cannot be set",
		},
		{
			name: "containers are allowed", allow: []string{"spec.containers"},
			template: "spec: {containers: [{name: x, lifecycle: {preStop: {exec: {}}}}]}",
		},
		{
			name: "init container", want: "spec.initContainers.securityContext",
			template: "spec: {initContainers: [{name: x, securityContext: {runAsUser: 0}}]}",
		},
		{
			name: "projected token", want: "spec.volumes.projected",
			template: "spec: {volumes: [{name: t, projected: {sources: [{serviceAccountToken: {}}]}}]}",
		},
		{name: "host IPC", template: "spec: {hostIPC: true}", want: "spec.hostIPC"},
		{name: "host users", template: "spec: {hostUsers: true}", want: "spec.hostUsers"},
		{name: "node", template: "spec: {nodeName: x}", want: "spec.nodeName cannot be set"},
		{
			name: "ephemeral container", template: "spec: {ephemeralContainers: [{name: x}]}",
			want: "spec.ephemeralContainers cannot be set",
		},
		{
			name:     "own label",
			template: "metadata: {labels: {sandboxagent/owner: x}}", want: "is taken",
		},
		{
			name: "variable of the probe", template: "spec: {containers: [{name: sandbox, " +
				"env: [{name: KUBERNETES_SERVICE_HOST, value: x}]}]}",
			want: "KUBERNETES_SERVICE_HOST",
		},
		{
			name:     "two documents",
			template: "spec: {}\n---\nspec: {hostNetwork: true}", want: "2 documents",
		},
		{
			name:     "case of letters",
			template: "spec: {hostnetwork: true}", want: `unknown field "spec.hostnetwork"`,
		},
		{
			name: "owner", template: "metadata: {ownerReferences: [{name: x}]}",
			want: "metadata.ownerReferences",
		},
		{name: "empty", template: "spec: {securityContext: {}}", want: "spec.securityContext"},
		{
			name: "allowed", template: "spec: {volumes: [{name: h, hostPath: {path: /data}}]}",
			allow: []string{"spec.volumes.hostPath"},
		},
		{
			name:     "part allowed",
			template: "spec: {securityContext: {runAsUser: 5, sysctls: [{name: x, value: y}]}}",
			allow:    []string{"spec.securityContext.runAsUser"}, want: "spec.securityContext.sysctls",
		},
		{
			name: "unknown", template: "spec: {hostNetwrok: true}",
			want: `unknown field "spec.hostNetwrok"`,
		},
		{name: "twice", template: "spec: {dnsPolicy: Default, dnsPolicy: None}", want: "already set"},
		{name: "type", template: "spec: 7", want: "cannot unmarshal"},
		{name: "no YAML", template: "\tx", want: "yaml"},
		{
			name: "own volume", template: "spec: {volumes: [{name: sandboxagent-work, emptyDir: {}}]}",
			want: "the name sandboxagent-work is taken",
		},
		{
			name:     "own mount",
			template: "spec: {containers: [{name: sandbox, volumeMounts: [{mountPath: /workspace}]}]}",
			want:     "/workspace is used already",
		},
		{
			name: "own container", template: "spec: {initContainers: [{name: sandboxagent-install}]}",
			want: "the name sandboxagent-install is taken",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := k8s.Config{Template: []byte(tt.template), AllowFields: tt.allow}.Validate()
			var config *k8s.ConfigError
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (!errors.As(err, &config) || config.Field != "pod template" ||
				!strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// TestConfigMistakes finds invalid fields without a cluster.
func TestConfigMistakes(t *testing.T) {
	t.Parallel()
	for field, c := range map[string]k8s.Config{
		"pull": {Pull: "sometimes"}, "network": {Network: "some"}, "cpus": {CPUs: -1},
		"memory": {Memory: 1}, "disk": {Disk: 1}, "user": {User: "root"},
		"vars":              {Options: remote.Options{Vars: []string{"KUBERNETES_SERVICE_HOST=x"}}},
		"working directory": {WorkDir: "x"}, "deadline": {Deadline: 1},
		"image": {Image: "A B"}, "helper image": {HelperImage: "-"},
		"label":   {Labels: map[string]string{"sandboxagent/session": "x"}},
		"enforce": {Network: k8s.NetworkFull, RequireNoNetwork: true},
	} {
		var config *k8s.ConfigError
		if err := c.Validate(); !errors.As(err, &config) || config.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, field := range []string{"", "spec", "x.y", "spec.", "spec.containers[0]"} {
		if err := (k8s.Config{AllowFields: []string{field}}).Validate(); err == nil {
			t.Errorf("the field %q may be allowed", field)
		}
	}
	for _, user := range []string{"0", "0:0", "4294967296", "x", "1:2:3"} {
		if err := (k8s.Config{User: user}).Validate(); err == nil {
			t.Errorf("user %s is valid", user)
		}
	}
	if err := (k8s.Config{Labels: map[string]string{"a": "b c"}}).Validate(); err == nil {
		t.Error("a label with a space is valid")
	}
}

// TestPod checks what every pod has.
func TestPod(t *testing.T) {
	t.Parallel()
	pod := k8s.PodOf(t, k8s.Config{
		CPUs: 0.5, Memory: 1 << 30, Disk: 2 << 30, RuntimeClass: "gvisor", Deadline: time.Hour,
		Template: []byte(`spec: {volumes: [{name: own, emptyDir: {}}], containers: [{name: sandbox,
			resources: {limits: {nvidia.com/gpu: 1}}}]}`),
	})
	s := pod.Spec
	if *s.EnableServiceLinks || *s.AutomountServiceAccountToken || *s.RuntimeClassName != "gvisor" ||
		*s.ActiveDeadlineSeconds != 3600 || s.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("%+v", s)
	}
	if c := s.SecurityContext; *c.RunAsUser != 10001 || *c.RunAsGroup != 10001 || !*c.RunAsNonRoot {
		t.Errorf("%+v", c)
	}
	want := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("2Gi"),
	}
	for i, k := range append(s.InitContainers, s.Containers...) {
		if i == len(s.InitContainers) {
			want["nvidia.com/gpu"] = resource.MustParse("1")
		}
		r := k.Resources
		same := equality.Semantic.DeepEqual(r.Limits, r.Requests)
		if !same || !equality.Semantic.DeepEqual(r.Limits, want) {
			t.Errorf("%s: %+v", k.Name, r)
		}
		if c := k.SecurityContext; !*c.ReadOnlyRootFilesystem || *c.AllowPrivilegeEscalation ||
			!slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: %+v", k.Name, c)
		}
	}
	for _, v := range s.Volumes {
		if v.EmptyDir == nil || v.EmptyDir.SizeLimit.IsZero() {
			t.Errorf("the volume %s has no limit", v.Name)
		}
	}
}

// TestSockets has helpers in the network of one node, each with a socket of its own.
func TestSockets(t *testing.T) {
	t.Parallel()
	for _, session := range []string{"a", "b"} {
		c := k8s.Config{Options: remote.Options{Session: session}}
		argv := k8s.PodOf(t, c).Spec.Containers[0].Command
		if !slices.Contains(argv, "@sandboxagent-"+session) {
			t.Errorf("the helper of %s has the arguments %q", session, argv)
		}
	}
}

// TestIsolation checks the strength of the isolation of a pod, and its text. Fields of the template
// that are allowed weaken it.
func TestIsolation(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		config   k8s.Config
		strength env.Strength
		by       string
	}{
		{k8s.Config{}, env.Enforced, "the kernel's namespaces, "},
		{k8s.Config{RuntimeClass: "gvisor"}, env.Enforced, "the runtime class gvisor, with "},
		{k8s.Config{Network: k8s.NetworkFull}, env.Enforced, "; commands can use the network"},
		{
			k8s.Config{AllowFields: []string{"spec.volumes", "spec.hostPID"}},
			env.BestEffort,
			"; the pod template may set spec.hostPID, spec.volumes",
		},
	} {
		got := k8s.IsolationOf(tt.config)
		if got.Strength != tt.strength || !strings.Contains(got.By, tt.by) {
			t.Errorf("%+v: %+v, want %v by %q", tt.config, got, tt.strength, tt.by)
		}
	}
}

// TestSharesFiles has volumes that are new with each pod, and others.
func TestSharesFiles(t *testing.T) {
	t.Parallel()
	for volume, want := range map[string]bool{
		"persistentVolumeClaim: {claimName: c}":                 true,
		"persistentVolumeClaim: {claimName: c, readOnly: true}": false,
		"csi: {driver: d}": true, "emptyDir: {}": false, "ephemeral: {}": false,
		"configMap: {name: c}": false,
	} {
		for mount, writable := range map[string]bool{
			"containers: [{name: sandbox, volumeMounts: [{name: v, mountPath: /v}]}]":                 true,
			"containers: [{name: sandbox, volumeMounts: [{name: v, mountPath: /v, readOnly: true}]}]": false,
			"containers: [{name: other, image: x, volumeMounts: [{name: v, mountPath: /v}]}]":         false,
		} {
			c := k8s.Config{Template: []byte("spec: {volumes: [{name: v, " + volume + "}], " + mount + "}")}
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			if got := c.SharesFiles(); got != (want && writable) {
				t.Errorf("%s: %t", c.Template, got)
			}
		}
	}
}
