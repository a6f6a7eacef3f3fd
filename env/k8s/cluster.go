package k8s

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sandboxagent/sandboxagent/internal/shorten"
)

// callTimeout bounds a request.
const callTimeout = 45 * time.Second

// Address selects a cluster, a user and a namespace. The zero value selects those of kubectl: the
// files of KUBECONFIG, else ~/.kube/config, else in a pod the service account.
type Address struct {
	// Kubeconfig is a file to use instead, or several, separated as in KUBECONFIG.
	Kubeconfig string
	// Context is the name of a context; default the current one.
	Context string
	// Namespace is the namespace of pods; default that of the context.
	Namespace string
	// User and Groups are impersonated, if they are not empty.
	User   string
	Groups []string
}

// Cluster is a connection to a cluster, made by Connect. Its methods may be called concurrently.
type Cluster struct {
	address    Address
	config     *rest.Config
	namespace  string
	core, nets rest.Interface
	http       *http.Client // of both
	client     string       // identifies this connection in the labels of its pods
	watch      *watch
	// protocol is the one of the first stream that was accepted, "websocket" or another one.
	protocol atomic.Value

	// life ends with the connection.
	life context.Context //nolint:containedctx // of the watch
	end  context.CancelFunc
}

// Connect reads the configuration of a cluster, and sends nothing yet. The error is a
// *ConfigError. The caller closes the cluster.
func Connect(ctx context.Context, a Address) (*Cluster, error) {
	config, a, err := a.load()
	if err != nil {
		return nil, err
	}
	config.UserAgent = manager
	config.QPS = -1 // the server protects itself, and the client obeys its Retry-After
	config.WarningHandlerWithContext = rest.NoWarnings{}
	if p := config.ExecProvider; p != nil {
		p.StdinUnavailable, p.StdinUnavailableMessage = true, "stdin belongs to the command"
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, badConfig("kubeconfig", "%v", err)
	}
	c := &Cluster{
		address: a, config: config, namespace: a.Namespace, client: newName(), http: httpClient,
	}
	c.core, err = c.Client(corev1.SchemeGroupVersion, scheme)
	if err == nil {
		c.nets, err = c.Client(networkingv1.SchemeGroupVersion, scheme)
	}
	if err != nil {
		return nil, badConfig("kubeconfig", "%v", err)
	}
	c.life, c.end = context.WithCancel(context.WithoutCancel(ctx))
	c.watch = newWatch(c)
	return c, nil
}

// load reads the configuration, and returns the address that selects the same from everywhere.
func (a Address) load() (*rest.Config, Address, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if files := filepath.SplitList(a.Kubeconfig); len(files) > 1 {
		rules.Precedence = files
	} else {
		rules.ExplicitPath = a.Kubeconfig
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: a.Context}
	overrides.Context.Namespace = a.Namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, a, badConfig("kubeconfig", "no cluster is configured: name a file, or set "+
			"KUBECONFIG")
	case err != nil && a.Context != "" && strings.Contains(err.Error(), "context "):
		return nil, a, badConfig("context", "%v", err)
	case err != nil:
		return nil, a, badConfig("kubeconfig", "%v", err)
	}
	if a.Namespace, _, err = loader.Namespace(); err != nil {
		return nil, a, badConfig("namespace", "%v", err)
	}
	if raw, err := loader.RawConfig(); err == nil && len(raw.Contexts) > 0 {
		a.Context = cmp.Or(a.Context, raw.CurrentContext)
		if a.Kubeconfig, err = absolute(rules.GetLoadingPrecedence()); err != nil {
			return nil, a, badConfig("kubeconfig", "%v", err)
		}
	}
	if a.User != "" || len(a.Groups) > 0 {
		if a.User == "" {
			return nil, a, badConfig("as", "groups are impersonated only together with a user")
		}
		config.Impersonate = rest.ImpersonationConfig{UserName: a.User, Groups: a.Groups}
	}
	return config, a, nil
}

// absolute returns the existing files of a list, as KUBECONFIG has them.
func absolute(files []string) (string, error) {
	var all []string
	for _, file := range files {
		if _, err := os.Stat(file); err != nil {
			continue
		}
		file, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		all = append(all, file)
	}
	return strings.Join(all, string(os.PathListSeparator)), nil
}

// newScheme returns the types that this package uses.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, networkingv1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err) // two types have one name
		}
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s
}

var (
	scheme     = newScheme()
	parameters = runtime.NewParameterCodec(scheme)
)

// Client returns a client for a group of the API, with the connections of the cluster, for objects
// that this package does not know. The scheme has their types.
func (c *Cluster) Client(
	group schema.GroupVersion, types *runtime.Scheme,
) (rest.Interface, error) {
	config := rest.CopyConfig(c.config)
	config.APIPath, config.GroupVersion = "/apis", &group
	if group.Group == "" {
		config.APIPath = "/api"
	}
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(types).WithoutConversion()
	return rest.RESTClientForConfigAndClient(config, c.http)
}

// Server returns the URL of the API server.
func (c *Cluster) Server() string { return c.config.Host }

// Address returns the address of the cluster, with the files, the context and the namespace that
// were selected, for another process.
func (c *Cluster) Address() Address { return c.address }

// Namespace returns the namespace of pods.
func (c *Cluster) Namespace() string { return c.namespace }

// Close ends the connection. Its environments must be closed first, and no other can be opened.
func (c *Cluster) Close() error {
	c.end()
	c.watch.wait()
	utilnet.CloseIdleConnectionsFor(c.http.Transport)
	return nil
}

// checkOpen returns an error after Close.
func (c *Cluster) checkOpen() error {
	if c.life.Err() != nil {
		return fmt.Errorf("k8s: %s: %w", c.Server(), fs.ErrClosed)
	}
	return nil
}

// Call makes a request with a client of the cluster, within 45 seconds. The error is a
// *ClusterError if the server does not answer, fails, or rejects the credentials.
func (c *Cluster) Call(ctx context.Context, do func(context.Context) error) error {
	late := fmt.Errorf("no answer within %s", callTimeout)
	limited, cancel := context.WithTimeoutCause(ctx, callTimeout, late)
	defer cancel()
	err := do(limited)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case limited.Err() != nil:
		return &ClusterError{Server: c.Server(), Err: late}
	}
	return c.explain(err)
}

// pods begins a request about pods, or one pod.
func (c *Cluster) pods(verb, name string) *rest.Request {
	r := c.core.Verb(verb).Namespace(c.namespace).Resource("pods")
	if name != "" {
		r = r.Name(name)
	}
	return r
}

// createPod creates a pod, or with dryRun has the server check it only.
func (c *Cluster) createPod(
	ctx context.Context, pod *corev1.Pod, dryRun bool,
) (created *corev1.Pod, err error) {
	options := &metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	created = &corev1.Pod{}
	err = c.Call(ctx, func(ctx context.Context) error {
		return c.pods(http.MethodPost, "").VersionedParams(options, parameters).Body(pod).Do(ctx).
			Into(created)
	})
	return created, err
}

// getPod returns a pod.
func (c *Cluster) getPod(ctx context.Context, name string) (pod *corev1.Pod, err error) {
	pod = &corev1.Pod{}
	err = c.Call(ctx, func(ctx context.Context) error {
		return c.pods(http.MethodGet, name).Do(ctx).Into(pod)
	})
	return pod, err
}

// listPods returns the pods that labels select.
func (c *Cluster) listPods(ctx context.Context, selector string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := c.Call(ctx, func(ctx context.Context) error {
		return c.pods(http.MethodGet, "").VersionedParams(
			&metav1.ListOptions{LabelSelector: selector}, parameters).Do(ctx).Into(&list)
	})
	return list.Items, err
}

// lastWarning returns the text of the last event of a pod that is a warning; empty without one, or
// without the permission.
func (c *Cluster) lastWarning(ctx context.Context, pod *corev1.Pod) string {
	var list corev1.EventList
	err := c.Call(ctx, func(ctx context.Context) error {
		return c.core.Get().Namespace(c.namespace).Resource("events").VersionedParams(
			&metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(pod.UID)}, parameters).
			Do(ctx).Into(&list)
	})
	if err != nil {
		return "" // the pod's state is what is known
	}
	text := ""
	for _, e := range list.Items {
		if e.Type == corev1.EventTypeWarning {
			text = e.Reason + ": " + shorten.Line(e.Message)
		}
	}
	return text
}

// deletePod deletes a pod, unless it is another one than that of uid. A missing one is no error.
func (c *Cluster) deletePod(ctx context.Context, name, uid string) error {
	options := &metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	if uid != "" {
		options.Preconditions = metav1.NewUIDPreconditions(uid)
	}
	err := c.Call(ctx, func(ctx context.Context) error {
		return c.pods(http.MethodDelete, name).Body(options).Do(ctx).Error()
	})
	if err == nil || isMissing(err) || isConflict(err) {
		return nil
	}
	return fmt.Errorf("delete the pod %s: %w", name, err)
}

// denyNetwork creates a policy that denies a pod all traffic. The cluster deletes it with the pod.
func (c *Cluster) denyNetwork(ctx context.Context, pod *corev1.Pod) error {
	policy := &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Labels: map[string]string{labelManager: manager},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
			}},
		},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{
				MatchLabels: map[string]string{labelSession: pod.Labels[labelSession]},
			},
			PolicyTypes: []networkingv1.PolicyType{
				networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress,
			},
		},
	}
	err := c.Call(ctx, func(ctx context.Context) error {
		return c.nets.Post().Namespace(c.namespace).Resource("networkpolicies").Body(policy).Do(ctx).
			Error()
	})
	if err != nil {
		return fmt.Errorf("create a network policy for the pod: %w", err)
	}
	return nil
}
