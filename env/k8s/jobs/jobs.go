package jobs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sandboxagent/sandboxagent/env/k8s"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// Exit codes of the program in a pod. After any other one but 0 its input is tried again.
const (
	// ExitFailed: the program has stored its result, which is a failure.
	ExitFailed = 1
	// ExitStop: all inputs would fail like this one, and the cluster ends the Job.
	ExitStop = 3
	// ExitLater: the input is tried again, which does not count.
	ExitLater = 4
)

// Bounds of a submission.
const (
	// MaxInputs bounds the inputs of a Job.
	MaxInputs = 1_000_000
	// manyInputs is the number of indexes beyond which the cluster wants limits: maxParallel and
	// maxFailed.
	manyInputs             = 100_000
	maxParallel, maxFailed = 10_000, 10_000
	// maxBounds bounds the first inputs of the parts, as JSON: a variable of each pod.
	maxBounds = 100 << 10
	// MaxStored bounds inputs and files together, compressed: the objects of a cluster share a
	// database, which has 2 GiB by default.
	MaxStored = 64 << 20
)

// Labels and annotations of the objects.
const (
	labelManager = "app.kubernetes.io/managed-by"
	manager      = "sandboxagent"
	labelJob     = "sandboxagent/batch"
	labelKind    = "sandboxagent/kind"
	labelQueue   = "kueue.x-k8s.io/queue-name"

	annotationBounds = "sandboxagent/inputs"
	// annotationMaker has random letters of the program that made a Job.
	annotationMaker   = "sandboxagent/maker"
	annotationSummary = "sandboxagent/summary"
	annotationIndex   = "sandboxagent/index"
	annotationPieces  = "sandboxagent/pieces"
)

// ErrExists means that the namespace has a Job of that name.
var ErrExists = errors.New("the name is taken")

// ErrMissing means that the namespace has no submission of that name.
var ErrMissing = errors.New("there is none of that name")

// Client makes, reads and ends submissions in the namespace of a cluster. Its methods may be
// called concurrently.
type Client struct {
	cluster           *k8s.Cluster
	core, batch, nets rest.Interface
}

// known are the types of the objects, and the encoding of parameters.
var known = sync.OnceValues(func() (*runtime.Scheme, runtime.ParameterCodec) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, batchv1.AddToScheme, networkingv1.AddToScheme, metav1.AddMetaToScheme,
	} {
		if err := add(s); err != nil {
			panic(err) // two types have one name
		}
	}
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	return s, runtime.NewParameterCodec(s)
})

// New returns a client for the namespace of a cluster, which the caller closes after its use.
func New(cluster *k8s.Cluster) (*Client, error) {
	c := &Client{cluster: cluster}
	types, _ := known()
	var err error
	for group, client := range map[schema.GroupVersion]*rest.Interface{
		corev1.SchemeGroupVersion: &c.core, batchv1.SchemeGroupVersion: &c.batch,
		networkingv1.SchemeGroupVersion: &c.nets,
	} {
		if *client, err = cluster.Client(group, types); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// request begins a request about objects of the namespace.
func (c *Client) request(client rest.Interface, verb, resource string) *rest.Request {
	return client.Verb(verb).Namespace(c.cluster.Namespace()).Resource(resource)
}

// do makes a request, and decodes the answer into an object.
func (c *Client) do(ctx context.Context, r *rest.Request, into runtime.Object) error {
	return c.cluster.Call(ctx, func(ctx context.Context) error { return r.Do(ctx).Into(into) })
}

// with adds parameters to a request.
func with(r *rest.Request, parameters runtime.Object) *rest.Request {
	_, codec := known()
	return r.VersionedParams(parameters, codec)
}

// create creates an object, whose fields the server must know.
func (c *Client) create(
	ctx context.Context, client rest.Interface, resource string, object runtime.Object,
) error {
	return c.do(ctx, with(c.request(client, http.MethodPost, resource), &metav1.CreateOptions{
		FieldValidation: metav1.FieldValidationStrict,
	}).Body(object), object)
}

// Config describes a submission.
type Config struct {
	// Name names the Job and begins the names of its objects: at most 40 small letters, digits and
	// dashes.
	Name string
	// Image is that of the program: its entry point gets Args. Pull is when a node pulls it.
	Image string
	Pull  corev1.PullPolicy
	Args  []string
	// Inputs has an input for each pod, Files are for all of them, by names such as digests.
	Inputs [][]byte
	Files  map[string][]byte
	// Variables are secret environment variables of the program. Secrets are names of Secrets of the
	// namespace whose values become variables, too.
	Variables map[string]string
	Secrets   []string
	// Template is YAML of a pod; its container of the name "agent" is the program's. Account is the
	// name of a service account if the template has none.
	Template []byte
	Account  string
	// Parallel bounds the pods at the same time. Retries is how often an input is tried again whose
	// pod has failed without a result; a pod that the cluster disrupts, as by a drain, does not
	// count. MaxFailed, if not nil, ends the Job after more failed inputs; beyond 100,000 inputs more
	// than 10,000 do so in any case.
	Parallel, Retries int32
	MaxFailed         *int32
	// KeepFor is how long the Job and its results stay after its end; zero is forever.
	KeepFor time.Duration
	// Queue is a local queue of Kueue, which starts the Job.
	Queue string
	// Egress is where pods may connect to beside the API server.
	Egress Egress
	// Labels are those of all objects, and of pods.
	Labels map[string]string
}

// Egress are ports of TCP, at the addresses in CIDRs, and those of the API servers, at the
// addresses in Servers. Without any they are everywhere.
type Egress struct {
	Ports          []int32
	CIDRs, Servers []string
}

var validName = lazyregexp.New(`^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$`)

// CheckName reports why a name is none for a submission.
func CheckName(name string) error {
	if !validName().MatchString(name) {
		return fmt.Errorf("%q is not of at most 40 small letters, digits and dashes, the first a "+
			"letter, the last no dash", name)
	}
	return nil
}

// Submit creates a Job with its objects, and starts it, or leaves that to Config.Queue. After an
// error it has removed what it had created, and the error is ErrExists if the name is taken.
func (c *Client) Submit(ctx context.Context, cfg Config) (err error) {
	if err := CheckName(cfg.Name); err != nil {
		return err
	}
	switch {
	case len(cfg.Inputs) == 0:
		return errors.New("there are no inputs")
	case len(cfg.Inputs) > MaxInputs:
		return fmt.Errorf("%d inputs are more than %d; split them", len(cfg.Inputs), MaxInputs)
	case len(cfg.Inputs) > manyInputs && cfg.Parallel > maxParallel:
		return fmt.Errorf("a Job of more than %d inputs runs at most %d at the same time", manyInputs,
			maxParallel)
	}
	inputs, err := packInputs(cfg.Inputs)
	if err != nil {
		return err
	}
	size := inputs.size()
	for _, file := range cfg.Files {
		size += len(file)
	}
	if size > MaxStored {
		return fmt.Errorf("the inputs and files have %d MiB, compressed, which is more than %d MiB; "+
			"split the inputs, or put files on a volume", size>>20, MaxStored>>20)
	}
	job, err := cfg.job(inputs.bounds)
	if err != nil {
		return err
	}
	if err := c.check(ctx, job); err != nil {
		return err
	}
	// The server finishes what it has started, and the result has to be deleted after an error.
	if job, err = c.createJob(context.WithoutCancel(ctx), job); err != nil {
		return fmt.Errorf("create the Job %s: %w", cfg.Name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Remove(context.WithoutCancel(ctx), cfg.Name))
		}
	}()
	if err := c.equip(ctx, cfg, inputs, job); isTaken(err) { // by one that is being removed
		return fmt.Errorf("%w: %w", ErrExists, err)
	} else if err != nil {
		return err
	}
	return c.start(ctx, cfg)
}

// createJob creates a Job, and after an error removes it where the server may have made it. A Job
// of that name that another program has made stays.
func (c *Client) createJob(ctx context.Context, job *batchv1.Job) (*batchv1.Job, error) {
	maker := job.Annotations[annotationMaker]
	err := c.create(ctx, c.batch, "jobs", job)
	if err == nil || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsUnauthorized(err) {
		return job, err
	}
	found := &batchv1.Job{}
	ferr := c.do(ctx, c.request(c.batch, http.MethodGet, "jobs").Name(job.Name), found)
	own := ferr == nil && found.Annotations[annotationMaker] == maker
	switch {
	case apierrors.IsAlreadyExists(err) && own: // of a request that was repeated
		return found, nil
	case apierrors.IsAlreadyExists(err):
		return nil, ErrExists
	case own:
		return nil, errors.Join(err, c.Remove(ctx, job.Name))
	case ferr != nil && !apierrors.IsNotFound(ferr):
		return nil, fmt.Errorf("%w; it may be left: %w", err, ferr)
	}
	return nil, err
}

// check has the server check a pod of the Job: the account, the security standard, the template.
// The Job would only report that it cannot create pods.
func (c *Client) check(ctx context.Context, job *batchv1.Job) error {
	pod := &corev1.Pod{
		ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *job.Spec.Template.Spec.DeepCopy(),
	}
	pod.GenerateName = job.Name + "-"
	err := c.do(ctx, with(c.request(c.core, http.MethodPost, "pods"), &metav1.CreateOptions{
		FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll},
	}).Body(pod), pod)
	if err != nil && !strings.Contains(err.Error(), "exceeded quota") { // which may have room later
		return fmt.Errorf("the cluster rejects the pods: %w", err)
	}
	return nil
}

// equip creates the objects that a Job owns.
func (c *Client) equip(
	ctx context.Context, cfg Config, inputs packed, job *batchv1.Job,
) error {
	secret := &corev1.Secret{
		ObjectMeta: c.meta(job, cfg.Name), StringData: cfg.Variables,
	}
	if err := c.create(ctx, c.core, "secrets", secret); err != nil {
		return fmt.Errorf("create the Secret %s: %w", cfg.Name, err)
	}
	policy, err := c.networkPolicy(ctx, cfg, job)
	if err != nil {
		return err
	}
	if err := c.create(ctx, c.nets, "networkpolicies", policy); err != nil {
		return fmt.Errorf("create the network policy %s: %w", cfg.Name, err)
	}
	for i, data := range inputs.parts {
		err := c.put(ctx, blob{
			name: inputName(cfg.Name, i), kind: kindInput, meta: c.meta(job, ""), data: data,
			rest: newRest(),
		})
		if err != nil {
			return err
		}
	}
	for name, data := range cfg.Files {
		err := c.put(ctx, blob{
			name: fileName(cfg.Name, name), kind: kindFile, meta: c.meta(job, ""), data: data,
			rest: newRest(),
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// meta returns the metadata of an object that a Job owns.
func (c *Client) meta(job *batchv1.Job, name string) metav1.ObjectMeta {
	labels := make(map[string]string)
	for k, v := range job.Labels {
		labels[k] = v
	}
	return metav1.ObjectMeta{
		Name: name, Labels: labels, OwnerReferences: []metav1.OwnerReference{owner(job.Name, job.UID)},
	}
}

func owner(name string, uid types.UID) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: name, UID: uid}
}
