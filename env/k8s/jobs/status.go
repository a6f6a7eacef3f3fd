package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
	"github.com/sandboxagent/sandboxagent/internal/shorten"
)

// State is the state of a submission.
type State string

// States. Queued waits for its queue; Ended has no pod any more, and every input has succeeded or
// failed; Stopped has ended before that.
const (
	Preparing State = "preparing"
	Queued    State = "queued"
	Running   State = "running"
	Ended     State = "ended"
	Stopped   State = "stopped"
)

// Status is what a cluster knows of a submission.
type Status struct {
	Name  string
	State State
	// Reason is why it was stopped, in the words of the cluster.
	Reason string
	// Inputs is the number of inputs. Active pods run or wait for a node; Ready ones run.
	Inputs, Active, Ready int
	// Succeeded counts inputs whose programs have exited with 0. Failed are the indexes of those that
	// have failed for good.
	Succeeded int
	Failed    []int
	Created   time.Time
	// Finished is zero before the end.
	Finished time.Time

	version string
	uid     types.UID
	bounds  []int
}

// stoppedBy is the pod whose program has ended the Job with ExitStop, in the words of Kubernetes.
var stoppedBy = lazyregexp.New(` for pod [^/ ]+/[^ ]+-([0-9]+)-[a-z0-9]+ failed with exit code `)

// StoppedBy returns the input whose program has ended the submission with ExitStop, as far as the
// cluster tells it.
func (s Status) StoppedBy() (index int, ok bool) {
	found := stoppedBy().FindStringSubmatch(s.Reason)
	if s.State != Stopped || found == nil {
		return 0, false
	}
	index, err := strconv.Atoi(found[1])
	return index, err == nil && index < s.Inputs
}

// Done reports whether no pod runs, and none will.
func (s Status) Done() bool { return s.State == Ended || s.State == Stopped }

// Status returns the status of a submission. The error is ErrMissing without one.
func (c *Client) Status(ctx context.Context, name string) (Status, error) {
	job := &batchv1.Job{}
	err := c.do(ctx, c.request(c.batch, http.MethodGet, "jobs").Name(name), job)
	if err != nil {
		return Status{}, explain(err, name)
	}
	if job.Labels[labelJob] != name {
		return Status{}, fmt.Errorf("the Job %s is no batch: %w", name, ErrMissing)
	}
	return statusOf(job)
}

// List returns the submissions of the namespace by their names.
func (c *Client) List(ctx context.Context) (all []Status, err error) {
	list := &batchv1.JobList{}
	err = c.do(ctx, with(c.request(c.batch, http.MethodGet, "jobs"), &metav1.ListOptions{
		LabelSelector: labelManager + "=" + manager + "," + labelJob,
	}), list)
	for i := range list.Items {
		s, serr := statusOf(&list.Items[i])
		err = errors.Join(err, serr)
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

func statusOf(job *batchv1.Job) (Status, error) {
	s := Status{
		Name: job.Name, State: Running, Inputs: int(*job.Spec.Completions),
		Active: int(job.Status.Active), Succeeded: int(job.Status.Succeeded),
		Created: job.CreationTimestamp.Time, version: job.ResourceVersion,
		uid: job.UID,
	}
	if job.Status.Ready != nil {
		s.Ready = int(*job.Status.Ready)
	}
	if suspended := job.Spec.Suspend; suspended != nil && *suspended {
		s.State = Preparing
		if job.Labels[labelQueue] != "" {
			s.State = Queued
		}
	}
	for _, cond := range job.Status.Conditions {
		if cond.Status != corev1.ConditionTrue {
			continue
		}
		switch cond.Type {
		case batchv1.JobComplete:
			s.State, s.Finished = Ended, cond.LastTransitionTime.Time
		case batchv1.JobFailed:
			s.State, s.Finished = Stopped, cond.LastTransitionTime.Time
			if cond.Reason == batchv1.JobReasonFailedIndexes {
				s.State = Ended // each input has been tried
			}
			s.Reason = strings.TrimSuffix(cond.Reason+": "+shorten.Line(cond.Message), ": ")
		}
	}
	err := json.Unmarshal([]byte(job.Annotations[annotationBounds]), &s.bounds)
	if err == nil && job.Status.FailedIndexes != nil {
		s.Failed, err = parseIndexes(*job.Status.FailedIndexes, s.Inputs)
	}
	if err != nil {
		return s, fmt.Errorf("read the state of the Job %s: %w", job.Name, err)
	}
	return s, nil
}

// parseIndexes reads a list such as 1,3-5,7 of numbers below limit.
func parseIndexes(text string, limit int) (all []int, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, is := strings.Cut(part, "-")
		if !is {
			to = from
		}
		first, err := strconv.Atoi(from)
		last, lerr := strconv.Atoi(to)
		if err = errors.Join(err, lerr); err != nil || first < 0 || last < first || last >= limit {
			return nil, fmt.Errorf("%q is no list of indexes below %d", text, limit)
		}
		for i := first; i <= last; i++ {
			all = append(all, i)
		}
	}
	return all, nil
}

// Wait waits until a submission is Done, and returns its last status. Observe gets each status
// before.
func (c *Client) Wait(
	ctx context.Context, name string, observe func(Status),
) (Status, error) {
	for {
		s, err := patiently(ctx, func() (Status, error) { return c.Status(ctx, name) })
		if err != nil || s.Done() {
			return s, err
		}
		observe(s)
		if err := c.follow(ctx, s, observe); err != nil {
			return s, err
		}
	}
}

const (
	// watchTime bounds a watch of the API: after it Wait observes again, for a pod that does not
	// start changes nothing of its Job.
	watchTime = 30 * time.Second
	// pollPause is the pause between two looks at a Job whose watch has ended.
	pollPause = time.Second
)

// follow watches a Job until it changes so that its status has to be read again, or the server
// ends the watch.
func (c *Client) follow(ctx context.Context, s Status, observe func(Status)) error {
	seconds := int64(watchTime.Seconds())
	w, err := with(c.request(c.batch, http.MethodGet, "jobs"), &metav1.ListOptions{
		FieldSelector: "metadata.name=" + s.Name, ResourceVersion: s.version, Watch: true,
		TimeoutSeconds: &seconds,
	}).Watch(ctx)
	if err == nil {
		defer w.Stop()
		for e := range w.ResultChan() {
			job, ok := e.Object.(*batchv1.Job)
			if !ok || e.Type == apiwatch.Deleted {
				return nil // the caller sees why
			}
			if s, err = statusOf(job); err != nil || s.Done() {
				return nil //nolint:nilerr // the caller reads it again
			}
			observe(s)
		}
	}
	select { // the server may refuse each watch
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(pollPause):
		return nil
	}
}

// Inputs returns the inputs of a submission.
func (c *Client) Inputs(ctx context.Context, s Status) (inputs [][]byte, err error) {
	for i := range s.bounds {
		data, err := c.get(ctx, inputName(s.Name, i))
		if err != nil {
			return nil, fmt.Errorf("read the inputs of %s: %w", s.Name, err)
		}
		part, err := unpackInputs(data)
		if err != nil {
			return nil, fmt.Errorf("the inputs of %s are damaged: %w", s.Name, err)
		}
		inputs = append(inputs, part...)
	}
	return inputs, nil
}

// Result is what a program has stored of its input.
type Result struct {
	Index   int
	Summary []byte
	// Data is nil in Summaries.
	Data []byte
}

// Results returns the results of a submission, with their data. After an error the sequence ends.
func (c *Client) Results(ctx context.Context, s Status) iter.Seq2[Result, error] {
	return func(yield func(Result, error) bool) {
		options := metav1.ListOptions{LabelSelector: selector(s.Name, kindResult), Limit: pageSize}
		seen := make(map[int]bool)
		for {
			page := &corev1.ConfigMapList{}
			err := c.do(ctx, with(c.request(c.core, http.MethodGet, "configmaps"), &options), page)
			if apierrors.IsResourceExpired(err) && options.Continue != "" {
				options.Continue = "" // the reader took more time than the server gives: begin again
				continue
			}
			if err != nil {
				yield(Result{}, fmt.Errorf("read the results of %s: %w", s.Name, err))
				return
			}
			for i := range page.Items {
				if !isOf(page.Items[i].ObjectMeta, s.uid) {
					continue
				}
				r, err := resultOf(page.Items[i].ObjectMeta)
				if err == nil && seen[r.Index] {
					continue
				}
				seen[r.Index] = true
				if err == nil {
					r.Data, err = c.whole(ctx, &page.Items[i])
				}
				if !yield(r, err) || err != nil {
					return
				}
			}
			if options.Continue = page.Continue; options.Continue == "" {
				return
			}
		}
	}
}

// isOf reports whether an object is of the Job with an UID, and not of an earlier one of its name.
func isOf(m metav1.ObjectMeta, job types.UID) bool {
	return slices.ContainsFunc(m.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.UID == job
	})
}

// Result returns the data of the result of an input. The error is ErrMissing without one.
func (c *Client) Result(ctx context.Context, s Status, index int) ([]byte, error) {
	first, err := c.configMap(ctx, resultName(s.Name, index))
	switch {
	case err != nil:
		return nil, explain(err, s.Name)
	case !isOf(first.ObjectMeta, s.uid):
		return nil, fmt.Errorf("the batch %s: %w", s.Name, ErrMissing)
	}
	return c.whole(ctx, first)
}

// Summaries returns the results of a submission without their data.
func (c *Client) Summaries(ctx context.Context, s Status) (all []Result, err error) {
	options := metav1.ListOptions{LabelSelector: selector(s.Name, kindResult), Limit: 500}
	for {
		var page metav1.PartialObjectMetadataList
		err := c.cluster.Call(ctx, func(ctx context.Context) error {
			data, err := with(c.request(c.core, http.MethodGet, "configmaps"), &options).
				SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").
				DoRaw(ctx)
			if err != nil {
				return err
			}
			return json.Unmarshal(data, &page)
		})
		if err != nil {
			return nil, fmt.Errorf("read the results of %s: %w", s.Name, err)
		}
		for _, m := range page.Items {
			if !isOf(m.ObjectMeta, s.uid) {
				continue
			}
			r, err := resultOf(m.ObjectMeta)
			if err != nil {
				return nil, err
			}
			all = append(all, r)
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return all, nil
		}
	}
}

func resultOf(m metav1.ObjectMeta) (Result, error) {
	index, err := strconv.Atoi(m.Annotations[annotationIndex])
	if err != nil {
		return Result{}, fmt.Errorf("the result %s is damaged: %w", m.Name, err)
	}
	return Result{Index: index, Summary: []byte(m.Annotations[annotationSummary])}, nil
}

// Labels of the pods of an Indexed Job, by Kubernetes.
const (
	labelOfJob   = "batch.kubernetes.io/job-name"
	labelOfIndex = "batch.kubernetes.io/job-completion-index"
)

// pods returns the pods of an input, the oldest first.
func (c *Client) pods(ctx context.Context, name string, index int) ([]corev1.Pod, error) {
	list := &corev1.PodList{}
	err := c.do(ctx, with(c.request(c.core, http.MethodGet, "pods"), &metav1.ListOptions{
		LabelSelector: fmt.Sprintf("%s=%s,%s=%d", labelOfJob, name, labelOfIndex, index),
	}), list)
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return list.Items, err
}

// ErrNoPod means that an input has no pod: it has not started, or its pods are deleted.
var ErrNoPod = errors.New("it has no pod")

// Logs writes the output of the last pod of an input, until it ends if follow is true. The error
// is ErrNoPod without one.
func (c *Client) Logs(
	ctx context.Context, name string, index int, follow bool, to io.Writer,
) error {
	pods, err := c.pods(ctx, name, index)
	if err != nil {
		return err
	}
	if len(pods) == 0 {
		return ErrNoPod
	}
	if pod := pods[len(pods)-1]; pod.Status.Phase == corev1.PodPending {
		if !follow {
			return fmt.Errorf("its pod %s has not started%s", pod.Name,
				prefixed(": ", startReason(pod)))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollPause):
			return c.Logs(ctx, name, index, follow, to)
		}
	}
	in, err := with(c.request(c.core, http.MethodGet, "pods").Name(pods[len(pods)-1].Name).
		SubResource("log"), &corev1.PodLogOptions{Container: container, Follow: follow}).Stream(ctx)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it was only read
	_, err = io.Copy(to, in)
	return err
}

// Blocked describes why one of the pods of a submission does not start, in the words of the
// cluster; empty if that is not known.
func (c *Client) Blocked(ctx context.Context, name string) (string, error) {
	list := &corev1.PodList{}
	err := c.do(ctx, with(c.request(c.core, http.MethodGet, "pods"), &metav1.ListOptions{
		LabelSelector: labelOfJob + "=" + name, FieldSelector: "status.phase=Pending", Limit: 50,
	}), list)
	for _, pod := range list.Items {
		if why := startReason(pod); why != "" {
			return pod.Name + ": " + why, err
		}
	}
	return "", err
}

// startReason returns why a pod does not start; empty if it is about to.
func startReason(pod corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return shorten.Line(c.Reason + ": " + c.Message)
		}
	}
	for _, k := range pod.Status.ContainerStatuses {
		if w := k.State.Waiting; w != nil && w.Reason != "ContainerCreating" &&
			w.Reason != "PodInitializing" {
			return shorten.Line(w.Reason + prefixed(": ", w.Message))
		}
	}
	return ""
}

// prefixed returns a text after a prefix, or nothing if it is empty.
func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// Failure describes why the last pod of an input has failed, in the words of the cluster; empty if
// that is not known.
func (c *Client) Failure(ctx context.Context, name string, index int) (string, error) {
	pods, err := c.pods(ctx, name, index)
	if err != nil || len(pods) == 0 {
		return "", err
	}
	pod := pods[len(pods)-1]
	parts := map[string]bool{}
	if pod.Status.Reason != "" {
		parts[pod.Status.Reason+": "+pod.Status.Message] = true
	}
	for _, k := range pod.Status.ContainerStatuses {
		if t := k.State.Terminated; t != nil && k.Name == container {
			text := fmt.Sprintf("exit code %d", t.ExitCode)
			if t.Reason != "" && t.Reason != "Error" {
				text += ", " + t.Reason
			}
			if t.Message != "" {
				lines := strings.Split(strings.TrimSpace(t.Message), "\n")
				text += ": " + lines[len(lines)-1]
			}
			parts[text] = true
		}
	}
	return shorten.Line(strings.Join(slices.Sorted(maps.Keys(parts)), "; ")), nil
}
