package k8s

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// watchPause is the pause before a watch that broke begins again.
const watchPause = time.Second

// observed is the state of a pod according to the watch.
type observed struct {
	pod     *corev1.Pod // the last state, also of a deleted pod; nil before the first
	deleted bool
	// startedContainers are those, of this pod or an earlier one, that have started, each as the UID
	// of its pod and its field. A kubelet sends such an event at once, and a state once a second.
	startedContainers []string
	changed           chan struct{} // closed at the next change
}

// runs reports whether a container has started, and is not known to have ended.
func (o *observed) runs(name string) bool {
	s := findStatus(slices.Concat(o.pod.Status.InitContainerStatuses,
		o.pod.Status.ContainerStatuses), name)
	return s.State.Running != nil || s.State.Terminated == nil &&
		slices.ContainsFunc(o.startedContainers, func(field string) bool {
			return strings.HasPrefix(field, string(o.pod.UID)) && strings.HasSuffix(field, "{"+name+"}")
		})
}

// hasSucceeded reports whether an init container has ended with exit code 0.
func (o *observed) hasSucceeded(name string) bool {
	t := findStatus(o.pod.Status.InitContainerStatuses, name).State.Terminated
	return t != nil && t.ExitCode == 0
}

// watch follows the pods of a connection with one request, and the events of their namespace with
// another.
type watch struct {
	cluster *Cluster
	done    sync.WaitGroup

	mu      sync.Mutex
	started bool
	refused error // why the server permits no watch
	denied  bool  // the last begin was denied
	of      map[string]*observed
}

func newWatch(c *Cluster) *watch { return &watch{cluster: c, of: make(map[string]*observed)} }

// follow starts recording the states of a pod. It returns false if another environment does.
func (w *watch) follow(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[name] != nil {
		return false
	}
	w.of[name] = &observed{changed: make(chan struct{})}
	if !w.started {
		w.started = true
		w.done.Go(w.run)
		w.done.Go(w.runEvents)
	}
	return true
}

// forget stops recording.
func (w *watch) forget(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.of, name)
}

// last returns the last recorded state of a pod; nil without one.
func (w *watch) last(name string) *corev1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.of[name]; o != nil {
		return o.pod
	}
	return nil
}

// until calls done with each state of a pod until it returns true or an error.
func (w *watch) until(
	ctx context.Context, name string, done func(*observed) (bool, error),
) error {
	for {
		w.mu.Lock()
		var o observed
		if p := w.of[name]; p != nil {
			o = *p
		}
		refused := w.refused
		w.mu.Unlock()
		switch {
		case refused != nil:
			return refused
		case o.changed == nil:
			return fmt.Errorf("the pod %s is not followed: %w", name, fs.ErrClosed)
		case o.pod != nil:
			if ok, err := done(&o); ok || err != nil {
				return err
			}
		}
		select {
		case <-o.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// wait waits until the watch has ended, which follows the end of the connection.
func (w *watch) wait() { w.done.Wait() }

// run reads states.
func (w *watch) run() {
	w.repeat(watchPause, w.record, func() (apiwatch.Interface, error) {
		stream, err := w.begin()
		w.refuse(err)
		return stream, err
	})
}

// repeat records what streams bring, and begins another one where one broke, until the connection
// ends or begin returns errNoMore.
func (w *watch) repeat(
	pause time.Duration, record func(apiwatch.Event), begin func() (apiwatch.Interface, error),
) {
	life := w.cluster.life
	for life.Err() == nil {
		stream, err := begin()
		if errors.Is(err, errNoMore) {
			return
		}
		if err == nil {
			for e := range stream.ResultChan() {
				record(e)
			}
			stream.Stop()
		}
		select {
		case <-time.After(pause):
		case <-life.Done():
		}
	}
}

var errNoMore = errors.New("the server permits no watch")

// begin lists all pods, of which some may have been deleted while nothing was read, and watches
// what follows.
func (w *watch) begin() (apiwatch.Interface, error) {
	c, options := w.cluster, metav1.ListOptions{LabelSelector: labelClient + "=" + w.cluster.client}
	var list corev1.PodList
	err := c.Call(c.life, func(ctx context.Context) error {
		return c.pods(http.MethodGet, "").VersionedParams(&options, parameters).Do(ctx).Into(&list)
	})
	if err != nil {
		return nil, err
	}
	exists := make(map[string]bool)
	for i := range list.Items {
		exists[list.Items[i].Name] = true
		w.record(apiwatch.Event{Type: apiwatch.Modified, Object: &list.Items[i]})
	}
	w.mu.Lock()
	for name, o := range w.of {
		if o.pod != nil && !exists[name] {
			o.deleted = true
			o.change()
		}
	}
	w.mu.Unlock()
	options.Watch, options.ResourceVersion = true, list.ResourceVersion
	return c.pods(http.MethodGet, "").VersionedParams(&options, parameters).Watch(c.life)
}

// refuse records whether the server permits the watch. It may reject credentials once, which are
// then renewed.
func (w *watch) refuse(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = nil
	denied := isDenied(err)
	if w.cluster.life.Err() == nil && (apierrors.IsForbidden(err) || denied && w.denied) {
		w.refused = w.cluster.explain(err)
		for _, o := range w.of {
			o.change()
		}
	}
	w.denied = denied
}

// record applies an event.
func (w *watch) record(e apiwatch.Event) {
	pod, ok := e.Object.(*corev1.Pod)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.of[pod.Name]; o != nil {
		o.pod, o.deleted = pod, e.Type == apiwatch.Deleted
		o.change()
	}
}

// eventPause is the pause before the watch of events begins again. Those that are lost cost time
// only: the states follow.
const eventPause = 10 * time.Second

// runEvents reads which containers start, unless the server does not permit it.
func (w *watch) runEvents() {
	w.repeat(eventPause, w.recordEvent, func() (apiwatch.Interface, error) {
		stream, err := w.beginEvents()
		if apierrors.IsForbidden(err) {
			err = errNoMore
		}
		return stream, err
	})
}

// beginEvents watches the starts of containers from now on.
func (w *watch) beginEvents() (apiwatch.Interface, error) {
	c := w.cluster
	options := metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod,reason=Started", Limit: 1}
	request := func() *rest.Request {
		return c.core.Get().Namespace(c.namespace).Resource("events").
			VersionedParams(&options, parameters)
	}
	var list corev1.EventList
	err := c.Call(c.life, func(ctx context.Context) error {
		return request().Do(ctx).Into(&list)
	})
	if err != nil {
		return nil, err
	}
	options.Limit, options.Watch, options.ResourceVersion = 0, true, list.ResourceVersion
	return request().Watch(c.life)
}

// recordEvent applies an event.
func (w *watch) recordEvent(e apiwatch.Event) {
	event, ok := e.Object.(*corev1.Event)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.of[event.InvolvedObject.Name]; o != nil {
		o.startedContainers = append(slices.Clip(o.startedContainers),
			string(event.InvolvedObject.UID)+event.InvolvedObject.FieldPath)
		o.change()
	}
}

// change wakes those who wait for a change.
func (o *observed) change() {
	close(o.changed)
	o.changed = make(chan struct{})
}
