package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sort"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sandboxagent/sandboxagent/env/k8s"
)

// Worker is the program of a submission in a pod.
type Worker struct {
	// Index is that of its input.
	Index int
	// Pod is the pod of the program.
	Pod k8s.PodID

	client *Client
	job    string
	uid    types.UID // of the Job
	bounds []int
}

// patience bounds how long a worker waits for a server that does not answer, fails, or rejects
// requests for their number, and for room in a quota: the work of hours may be lost otherwise.
// Between two requests is a random pause of at most patiencePause.
const (
	patience      = 10 * time.Minute
	patiencePause = 10 * time.Second
)

// patiently calls do until it succeeds, or its error is neither that of a server that may recover
// nor that of a quota.
func patiently[T any](ctx context.Context, do func() (T, error)) (T, error) {
	for end := time.Now().Add(patience); ; {
		got, err := do()
		var failed *k8s.ClusterError
		recovers := errors.As(err, &failed) && !failed.Denied || k8s.IsQuota(err)
		if !recovers || time.Now().After(end) {
			return got, err
		}
		select {
		case <-ctx.Done():
			return got, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(time.Duration(rand.Int64N(int64(patiencePause)))):
		}
	}
}

// Explain tells Client.Failure in one line why the program will end. Without it the last line of
// its output does.
func (*Worker) Explain(text string) {
	const messages = corev1.TerminationMessagePathDefault
	if f, err := os.OpenFile(messages, os.O_WRONLY|os.O_TRUNC, 0); err == nil { // none is no loss
		_, _ = f.WriteString(text)
		_ = f.Close()
	}
}

// InPod reports whether the program runs in a pod of a submission.
func InPod() bool { return os.Getenv(variableName) != "" }

// OpenWorker returns the worker of this pod, whose cluster the caller closes.
func OpenWorker(cluster *k8s.Cluster) (w *Worker, err error) {
	w = &Worker{
		job: os.Getenv(variableName), uid: types.UID(os.Getenv(variableJobUID)),
		Pod: k8s.PodID{Name: os.Getenv(variablePod), UID: os.Getenv(variableUID)},
	}
	if w.Index, err = strconv.Atoi(os.Getenv(variableIndex)); err != nil {
		err = fmt.Errorf("the variable %s: %w", variableIndex, err)
	}
	if err == nil {
		if err = json.Unmarshal([]byte(os.Getenv(variableBounds)), &w.bounds); err != nil {
			err = fmt.Errorf("the variable %s: %w", variableBounds, err)
		}
	}
	if err == nil {
		w.client, err = New(cluster)
	}
	return w, err
}

// Input returns the input.
func (w *Worker) Input(ctx context.Context) ([]byte, error) {
	part := sort.SearchInts(w.bounds, w.Index+1) - 1
	if part < 0 {
		return nil, fmt.Errorf("the input %d is in no part", w.Index)
	}
	data, err := patiently(ctx, func() ([]byte, error) {
		return w.client.get(ctx, inputName(w.job, part))
	})
	if err != nil {
		return nil, fmt.Errorf("read the input: %w", err)
	}
	inputs, err := unpackInputs(data)
	if i := w.Index - w.bounds[part]; err == nil && i < len(inputs) {
		return inputs[i], nil
	}
	return nil, fmt.Errorf("the input %d is damaged: %w", w.Index, err)
}

// File returns a file of Config.Files.
func (w *Worker) File(ctx context.Context, name string) ([]byte, error) {
	data, err := patiently(ctx, func() ([]byte, error) {
		return w.client.get(ctx, fileName(w.job, name))
	})
	if err != nil {
		return nil, fmt.Errorf("read the file %s: %w", name, err)
	}
	return data, nil
}

// Summary returns the summary of the result that the input has, from another pod; nil without one.
func (w *Worker) Summary(ctx context.Context) ([]byte, error) {
	m, err := patiently(ctx, func() (*corev1.ConfigMap, error) {
		return w.client.configMap(ctx, resultName(w.job, w.Index))
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for a result: %w", err)
	}
	if !isOf(m.ObjectMeta, w.uid) { // the cluster removes it with its Job
		return nil, nil
	}
	return []byte(m.Annotations[annotationSummary]), nil
}

// Store stores the result of the input, with a summary of at most 100 KiB. If the input has one
// already, that stays: the summary returned is that of the result that counts.
func (w *Worker) Store(ctx context.Context, summary, data []byte) ([]byte, error) {
	b := blob{
		name: resultName(w.job, w.Index), kind: kindResult, data: data, rest: newRest(),
		meta: metav1.ObjectMeta{
			Labels:          map[string]string{labelManager: manager, labelJob: w.job},
			OwnerReferences: []metav1.OwnerReference{owner(w.job, w.uid)},
		},
		annotations: map[string]string{
			annotationIndex: strconv.Itoa(w.Index), annotationSummary: string(summary),
		},
	}
	for end := time.Now().Add(patience); ; {
		_, err := patiently(ctx, func() (struct{}, error) { return struct{}{}, w.client.put(ctx, b) })
		if !isTaken(err) { // also by a request of this worker whose answer was lost
			return summary, err
		}
		have, serr := w.Summary(ctx)
		if serr != nil || have != nil {
			return have, serr
		}
		// A result of an earlier Job of this name goes soon.
		if time.Now().After(end) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pollPause):
		}
	}
}
