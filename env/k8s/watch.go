package k8s

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// watchPause is the pause before a watch that broke begins again.
const watchPause = time.Second

// observed is the state of a pod according to the watch.
type observed struct {
	pod     *corev1.Pod // the last state, also of a deleted pod; nil before the first
	deleted bool
	changed chan struct{} // closed at the next change
}

// watch follows the pods of a connection with one request.
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
	ctx context.Context, name string, done func(pod *corev1.Pod, deleted bool) (bool, error),
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
			if ok, err := done(o.pod, o.deleted); ok || err != nil {
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

// run reads states, and begins again where the stream broke.
func (w *watch) run() {
	c := w.cluster
	for c.life.Err() == nil {
		stream, err := w.begin()
		w.refuse(err)
		if err == nil {
			for e := range stream.ResultChan() {
				w.record(e)
			}
			stream.Stop()
		}
		select {
		case <-time.After(watchPause):
		case <-c.life.Done():
		}
	}
}

// begin lists all pods, of which some may have been deleted while nothing was read, and watches
// what follows.
func (w *watch) begin() (apiwatch.Interface, error) {
	c, options := w.cluster, metav1.ListOptions{LabelSelector: labelClient + "=" + w.cluster.client}
	var list corev1.PodList
	err := c.call(c.life, func(ctx context.Context) error {
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

// change wakes those who wait for a change.
func (o *observed) change() {
	close(o.changed)
	o.changed = make(chan struct{})
}
