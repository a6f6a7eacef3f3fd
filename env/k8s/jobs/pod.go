package jobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/sandboxagent/sandboxagent/internal/shorten"
)

// WorkDir is the writable directory, and the home directory, of the program.
const WorkDir = "/work"

const (
	// container is the name of the program's container.
	container  = "agent"
	workVolume = "sandboxagent-work"
	// user is the user and group of pods, which are not root.
	user = 10001
	// grace is the time that a program has to end, with its sandbox, in seconds.
	grace = 60
)

// Variables that tell a program what OpenWorker needs.
const (
	variableName   = "SANDBOXAGENT_JOB"
	variableBounds = "SANDBOXAGENT_JOB_INPUTS"
	variablePod    = "SANDBOXAGENT_JOB_POD"
	variableUID    = "SANDBOXAGENT_JOB_POD_UID"
	variableJobUID = "SANDBOXAGENT_JOB_UID"
	variableIndex  = "JOB_COMPLETION_INDEX" // by Kubernetes
)

// labelJobUID is a label of the pods of a Job, by Kubernetes.
const labelJobUID = "batch.kubernetes.io/controller-uid"

// job returns the Job, which is suspended until its objects exist. Bounds are the first inputs of
// the ConfigMaps.
func (cfg Config) job(bounds []int) (*batchv1.Job, error) {
	template, err := cfg.template()
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(bounds)
	if err != nil {
		return nil, err
	}
	if len(encoded) > maxBounds {
		return nil, fmt.Errorf("the inputs have %d parts of %d KiB, which are too many; split "+
			"them", len(bounds), partSize>>10)
	}
	many := len(cfg.Inputs) > manyInputs
	if many && (cfg.MaxFailed == nil || *cfg.MaxFailed > maxFailed) {
		cfg.MaxFailed = new(int32(maxFailed))
	}
	labels := maps.Clone(cfg.Labels)
	if labels == nil {
		labels = make(map[string]string)
	}
	labels[labelManager], labels[labelJob] = manager, cfg.Name
	pod := maps.Clone(template.Labels)
	if pod == nil {
		pod = make(map[string]string)
	}
	maps.Copy(pod, labels)
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: cfg.Name, Labels: labels,
			Annotations: map[string]string{
				annotationBounds: string(encoded), annotationMaker: rand.Text(),
			},
		},
		Spec: batchv1.JobSpec{
			CompletionMode: new(batchv1.IndexedCompletion),
			Completions:    new(int32(len(cfg.Inputs))), //nolint:gosec // at most MaxInputs
			Parallelism:    &cfg.Parallel, Suspend: new(true),
			BackoffLimitPerIndex: &cfg.Retries, MaxFailedIndexes: cfg.MaxFailed,
			PodFailurePolicy: failurePolicy(),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: pod, Annotations: template.Annotations},
				Spec:       cfg.pod(template.Spec, string(encoded)),
			},
		},
	}
	if cfg.KeepFor > 0 {
		seconds := math.Ceil(min(cfg.KeepFor.Seconds(), math.MaxInt32))
		job.Spec.TTLSecondsAfterFinished = new(int32(seconds))
	}
	return job, nil
}

// failurePolicy ends an index whose program has stored a failure, ends the Job when all inputs
// would fail, and does not count a pod that the cluster has disrupted. Any other failure counts.
func failurePolicy() *batchv1.PodFailurePolicy {
	onExit := func(action batchv1.PodFailurePolicyAction, code int32) batchv1.PodFailurePolicyRule {
		return batchv1.PodFailurePolicyRule{
			Action: action,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
				ContainerName: new(container), Operator: batchv1.PodFailurePolicyOnExitCodesOpIn,
				Values: []int32{code},
			},
		}
	}
	return &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		{
			Action: batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
			}},
		},
		onExit(batchv1.PodFailurePolicyActionFailIndex, ExitFailed),
		onExit(batchv1.PodFailurePolicyActionFailJob, ExitStop),
		onExit(batchv1.PodFailurePolicyActionIgnore, ExitLater),
	}}
}

// template decodes Template.
func (cfg Config) template() (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if len(cfg.Template) == 0 {
		return pod, nil
	}
	text, err := yaml.YAMLToJSONStrict(cfg.Template)
	if err == nil {
		var unknown []error
		unknown, err = kjson.UnmarshalStrict(text, pod)
		err = errors.Join(append(unknown, err)...)
	}
	if err != nil {
		return nil, fmt.Errorf("the template of pods: %s", shorten.Line(err.Error()))
	}
	return pod, nil
}

// pod completes the pod of a template: the Pod Security Standard "restricted", with a read-only
// root and one writable directory. What the template sets stays, but for what the program depends
// on.
func (cfg Config) pod(s corev1.PodSpec, bounds string) corev1.PodSpec {
	s.RestartPolicy = corev1.RestartPolicyNever
	s.ServiceAccountName = cmp.Or(s.ServiceAccountName, cfg.Account)
	setDefault(&s.AutomountServiceAccountToken, true)
	setDefault(&s.EnableServiceLinks, false)
	setDefault(&s.TerminationGracePeriodSeconds, grace)
	if s.SecurityContext == nil {
		s.SecurityContext = &corev1.PodSecurityContext{}
	}
	setDefault(&s.SecurityContext.RunAsNonRoot, true)
	setDefault(&s.SecurityContext.RunAsUser, user)
	setDefault(&s.SecurityContext.RunAsGroup, user)
	setDefault(&s.SecurityContext.FSGroup, user)
	setDefault(&s.SecurityContext.SeccompProfile, corev1.SeccompProfile{
		Type: corev1.SeccompProfileTypeRuntimeDefault,
	})
	k := corev1.Container{}
	s.Containers = slices.DeleteFunc(slices.Clone(s.Containers), func(c corev1.Container) bool {
		if c.Name == container {
			k = c
		}
		return c.Name == container
	})
	s.Containers = append([]corev1.Container{cfg.program(k, bounds)}, s.Containers...)
	s.Volumes = append(slices.Clone(s.Volumes), corev1.Volume{
		Name:         workVolume,
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}},
	})
	return s
}

// program completes the container of the program.
func (cfg Config) program(k corev1.Container, bounds string) corev1.Container {
	k.Name, k.Image, k.ImagePullPolicy, k.Args = container, cfg.Image, cfg.Pull, cfg.Args
	k.WorkingDir = WorkDir
	// The last lines of a program that fails explain an input without a result.
	k.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	if k.SecurityContext == nil {
		k.SecurityContext = &corev1.SecurityContext{}
	}
	setDefault(&k.SecurityContext.AllowPrivilegeEscalation, false)
	setDefault(&k.SecurityContext.ReadOnlyRootFilesystem, true)
	setDefault(&k.SecurityContext.Capabilities, corev1.Capabilities{
		Drop: []corev1.Capability{"ALL"},
	})
	if k.Resources.Limits == nil && k.Resources.Requests == nil {
		k.Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse("50m"),
				corev1.ResourceMemory: resource.MustParse("128Mi"),
			},
			Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")},
		}
	}
	k.VolumeMounts = append(slices.Clone(k.VolumeMounts), corev1.VolumeMount{
		Name: workVolume, MountPath: WorkDir,
	})
	for _, name := range cfg.Secrets {
		k.EnvFrom = append(k.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: name},
		}})
	}
	set := func(name, value string) {
		k.Env = append(k.Env, corev1.EnvVar{Name: name, Value: value})
	}
	of := func(name, field string) {
		k.Env = append(k.Env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: field},
		}})
	}
	k.Env = slices.Clone(k.Env)
	for _, name := range slices.Sorted(maps.Keys(cfg.Variables)) {
		k.Env = append(k.Env, corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: cfg.Name}, Key: name,
			},
		}})
	}
	set("HOME", WorkDir)
	set("TMPDIR", WorkDir)
	set(variableName, cfg.Name)
	set(variableBounds, bounds)
	of(variablePod, "metadata.name")
	of(variableUID, "metadata.uid")
	of(variableJobUID, "metadata.labels['"+labelJobUID+"']")
	return k
}

// setDefault sets a field that the template has not set.
func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// networkPolicy lets the pods of a Job connect to name servers, the API servers, Config.Egress and
// the port of a proxy that the template names, and lets nobody connect to them.
func (c *Client) networkPolicy(
	ctx context.Context, cfg Config, job *batchv1.Job,
) (*networkingv1.NetworkPolicy, error) {
	servers, err := c.serverPorts(ctx)
	if err != nil {
		return nil, err
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: c.meta(job, cfg.Name),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{labelJob: cfg.Name}},
			PolicyTypes: []networkingv1.PolicyType{
				networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress,
			},
			Egress: cfg.Egress.rules(servers, job.Spec.Template.Spec.Containers[0].Env),
		},
	}, nil
}

// rules permit connections to name servers, the ports of API servers, the proxies that variables
// name, and e.
func (e Egress) rules(
	servers []int32, vars []corev1.EnvVar,
) []networkingv1.NetworkPolicyEgressRule {
	port := func(protocol corev1.Protocol, n int32) networkingv1.NetworkPolicyPort {
		return networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: new(intstr.FromInt32(n))}
	}
	peers := func(cidrs ...string) (all []networkingv1.NetworkPolicyPeer) {
		for _, cidr := range cidrs {
			all = append(all, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr}})
		}
		return all
	}
	egress := []networkingv1.NetworkPolicyEgressRule{{
		Ports: []networkingv1.NetworkPolicyPort{
			port(corev1.ProtocolUDP, 53),
			port(corev1.ProtocolTCP, 53),
		},
	}}
	for _, n := range servers {
		egress = append(egress, networkingv1.NetworkPolicyEgressRule{
			Ports: []networkingv1.NetworkPolicyPort{port(corev1.ProtocolTCP, n)},
			To:    peers(e.Servers...),
		})
	}
	for _, n := range proxyPorts(vars) {
		egress = append(egress, networkingv1.NetworkPolicyEgressRule{
			Ports: []networkingv1.NetworkPolicyPort{port(corev1.ProtocolTCP, n)},
		})
	}
	var ports []networkingv1.NetworkPolicyPort
	for _, n := range e.Ports {
		ports = append(ports, port(corev1.ProtocolTCP, n))
	}
	if len(ports) > 0 {
		egress = append(egress, networkingv1.NetworkPolicyEgressRule{
			Ports: ports, To: peers(e.CIDRs...),
		})
	}
	return egress
}

// proxyPorts returns the ports of the proxies that variables name.
func proxyPorts(vars []corev1.EnvVar) (ports []int32) {
	for _, v := range vars {
		name := strings.ToUpper(v.Name)
		u, err := url.Parse(v.Value)
		if err != nil || v.Value == "" || name != "HTTPS_PROXY" && name != "HTTP_PROXY" {
			continue
		}
		n, err := strconv.ParseUint(cmp.Or(u.Port(), map[string]string{"https": "443"}[u.Scheme], "80"),
			10, 16)
		if err == nil && !slices.Contains(ports, int32(n)) {
			ports = append(ports, int32(n))
		}
	}
	return ports
}

// serverPorts returns the ports of the API servers, by the words of the one that answers. Rules of
// most network plugins see the addresses of the servers, not that of their service; it knows only
// its own.
func (c *Client) serverPorts(ctx context.Context) ([]int32, error) {
	var versions metav1.APIVersions
	err := c.cluster.Call(ctx, func(ctx context.Context) error {
		data, err := c.core.Get().AbsPath("/api").SetHeader("Accept", "application/json").DoRaw(ctx)
		if err != nil {
			return err
		}
		return json.Unmarshal(data, &versions)
	})
	if err != nil {
		return nil, fmt.Errorf("find the port of the API server: %w", err)
	}
	var all []int32
	for _, s := range versions.ServerAddressByClientCIDRs {
		_, text, err := net.SplitHostPort(s.ServerAddress)
		n, perr := strconv.ParseUint(text, 10, 16)
		if err == nil && perr == nil && !slices.Contains(all, int32(n)) {
			all = append(all, int32(n))
		}
	}
	if len(all) == 0 {
		all = []int32{443, 6443}
	}
	return all, nil
}

// start lets a Job start: at once, or when its queue does.
func (c *Client) start(ctx context.Context, cfg Config) error {
	change := map[string]any{"spec": map[string]any{"suspend": false}}
	if cfg.Queue != "" {
		change = map[string]any{"metadata": map[string]any{
			"labels": map[string]any{labelQueue: cfg.Queue},
		}}
	}
	if err := c.patch(ctx, cfg.Name, change); err != nil {
		return fmt.Errorf("start the Job %s: %w", cfg.Name, err)
	}
	return nil
}

// patch changes a Job.
func (c *Client) patch(ctx context.Context, name string, change map[string]any) error {
	data, err := json.Marshal(change)
	if err != nil {
		return err
	}
	return c.do(ctx, c.batch.Patch(types.MergePatchType).Namespace(c.cluster.Namespace()).
		Resource("jobs").Name(name).Body(data), &batchv1.Job{})
}

// Cancel ends the pods of a Job, also of one that waits; its results stay. The Job ends a second
// later with the reason DeadlineExceeded.
func (c *Client) Cancel(ctx context.Context, name string) error {
	// Kueue lets only a suspended Job leave its queue. Without parallelism no pod starts.
	err := c.patch(ctx, name, map[string]any{
		"metadata": map[string]any{"labels": map[string]any{labelQueue: nil}},
		"spec":     map[string]any{"suspend": true, "parallelism": 0},
	})
	if err == nil {
		err = c.patch(ctx, name, map[string]any{
			"spec": map[string]any{"suspend": false, "activeDeadlineSeconds": 1},
		})
	}
	return explain(err, name)
}

// Remove deletes a Job with its pods and results. A missing one is no error.
func (c *Client) Remove(ctx context.Context, name string) error {
	err := c.cluster.Call(ctx, func(ctx context.Context) error {
		return c.request(c.batch, http.MethodDelete, "jobs").Name(name).Body(&metav1.DeleteOptions{
			PropagationPolicy: new(metav1.DeletePropagationBackground),
		}).Do(ctx).Error()
	})
	if err = explain(err, name); errors.Is(err, ErrMissing) {
		return nil
	}
	return err
}

// Mounts returns the directories that a template mounts into the container of the program.
func Mounts(template []byte) (dirs []string, err error) {
	pod, err := Config{Template: template}.template()
	if err != nil {
		return nil, err
	}
	for _, k := range pod.Spec.Containers {
		for _, m := range k.VolumeMounts {
			if k.Name == container {
				dirs = append(dirs, m.MountPath)
			}
		}
	}
	return dirs, nil
}

// CheckCIDR reports why a text is no range of addresses.
func CheckCIDR(text string) error {
	_, _, err := net.ParseCIDR(text)
	return err
}
