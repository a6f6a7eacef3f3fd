package docker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/volume"
)

// creationGrace is how long a volume may be there before the container that it is made for.
const creationGrace = 10 * time.Second

// loaderTimeout is how long a container may be there that is never started.
const loaderTimeout = 10 * time.Minute

// Sandbox is a container that somebody made with this package, as the daemon knows it.
type Sandbox struct {
	// ID is the daemon's, Name the container's, and Session what the name was made of.
	ID, Name, Session string
	Image             string
	// State is the daemon's word for it: created, running, exited, dead.
	State   string
	Created time.Time
	// Owner is user and machine of whoever made it.
	Owner string
	// Mine says that the owner is this user on this machine.
	Mine bool
	// Garbage says that nobody can have a use for it any more, and Why says why or why not.
	Garbage bool
	Why     string
}

// List returns the containers that were made with this package on the daemon, by whomever, the oldest first.
func (e *Engine) List(ctx context.Context) ([]Sandbox, error) {
	var found []container.Summary
	err := e.call(ctx, func(ctx context.Context) (err error) {
		found, err = e.api.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", labelKind))})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("docker: list containers: %w", e.explain(ctx, err))
	}
	list := make([]Sandbox, 0, len(found))
	me, now := owner(), time.Now()
	for _, c := range found {
		name := ""
		if len(c.Names) > 0 {
			name = strings.TrimPrefix(c.Names[0], "/")
		}
		session, ok := sessionOf(name, c.Labels)
		if !ok { // an image can hand on labels like ours
			continue
		}
		s := Sandbox{
			ID: c.ID, Name: name, Session: session, Image: cmp.Or(c.Labels[labelImage], c.Image), State: c.State,
			Created: time.Unix(c.Created, 0), Owner: c.Labels[labelOwner],
		}
		s.Mine = s.Owner == me
		s.Garbage, s.Why = judge(s, c.Labels, now)
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b Sandbox) int { return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name)) })
	return list, nil
}

// sessionOf returns the session of a container of ours, whose name and labels go together.
func sessionOf(name string, labels map[string]string) (session string, ours bool) {
	rest, ok := strings.CutPrefix(name, namePrefix)
	if !ok {
		return "", false
	}
	switch labels[labelKind] {
	case kindSandbox:
		return rest, rest == labels[labelSession]
	case kindLoader:
		return strings.CutSuffix(rest, loaderSuffix)
	}
	return "", false
}

// judge decides whether a container is of no use to anybody any more.
func judge(s Sandbox, labels map[string]string, now time.Time) (garbage bool, why string) {
	switch {
	case s.State == container.StateRunning, s.State == container.StatePaused, s.State == container.StateRestarting:
		// It ends by itself when it has no client.
		if s.Mine && processEnded(labels[labelProcess]) {
			return false, "its client has ended; it ends " + labels[labelLease] + " after that"
		}
		return false, "in use"
	case s.State == container.StateRemoving:
		return false, "it is being removed"
	case s.State != container.StateCreated:
		return true, "it has ended"
	case labels[labelKind] == kindLoader:
		// It has no other labels, since they would become those of the image that is made of it.
		if now.Sub(s.Created) > loaderTimeout {
			return true, "it was there to fill something, and should be gone"
		}
		return false, "it is being filled"
	}
	if s.Mine && processEnded(labels[labelProcess]) {
		return true, "its client ended before it started"
	}
	by, err := time.Parse(time.RFC3339, labels[labelReady])
	if err != nil || now.After(by) {
		return true, "it was never started"
	}
	return false, "it is about to start"
}

// CollectOptions are options of Collect. The zero value removes garbage only.
type CollectOptions struct {
	// DryRun removes nothing.
	DryRun bool
	// All removes, besides, containers that still run though the process of this user on this machine that made them has
	// ended, and what is kept for the next container: volumes with helpers, and layers on images. What is in use is
	// never removed.
	All bool
}

// Collected is something that Collect removed, or would.
type Collected struct {
	// Kind is "container", "volume" or "layer".
	Kind, Name, Why string
	// Err is why it could not be removed.
	Err error
}

// Collect removes what clients that ended in the middle left behind. It returns what it removed or could not, which is also
// in the error.
func (e *Engine) Collect(ctx context.Context, opts CollectOptions) ([]Collected, error) {
	list, err := e.List(ctx)
	if err != nil {
		return nil, err
	}
	var done []Collected
	var errs []error
	add := func(c Collected, remove func() error) {
		if !opts.DryRun {
			if c.Err = remove(); c.Err != nil {
				errs = append(errs, c.Err)
			}
		}
		done = append(done, c)
	}
	for _, s := range list {
		left := s.Mine && s.State == container.StateRunning && s.Why != "in use"
		if s.Garbage || opts.All && left {
			add(Collected{Kind: "container", Name: s.Name, Why: s.Why}, func() error { return e.remove(ctx, s.ID) })
		}
	}
	left, err := e.volumesOf(ctx, "")
	if err != nil {
		return done, errors.Join(append(errs, err)...)
	}
	for _, v := range left {
		if created, err := time.Parse(time.RFC3339, v.CreatedAt); err == nil && time.Since(created) < creationGrace {
			continue // its container may be about to be made
		}
		add(Collected{Kind: "volume", Name: v.Name, Why: "its container is gone"}, func() error { return e.removeVolume(ctx, v.Name) })
	}
	if !opts.All {
		return done, errors.Join(errs...)
	}
	volumes, err := e.api.VolumeList(ctx, volume.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelKind+"="+kindHelper), filters.Arg("dangling", "true"))})
	if err != nil {
		return done, errors.Join(append(errs, fmt.Errorf("docker: list volumes: %w", e.explain(ctx, err)))...)
	}
	for _, v := range volumes.Volumes {
		add(Collected{Kind: "volume", Name: v.Name, Why: "no container uses this helper; the next one stores it again"}, func() error {
			return e.removeVolume(ctx, v.Name)
		})
	}
	layers, err := e.api.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelKind+"="+kindPrepared))})
	if err != nil {
		return done, errors.Join(append(errs, fmt.Errorf("docker: list images: %w", e.explain(ctx, err)))...)
	}
	used, err := e.usedImages(ctx)
	if err != nil {
		return done, errors.Join(append(errs, err)...)
	}
	for _, l := range layers {
		if used[l.ID] {
			continue
		}
		if !slices.ContainsFunc(l.RepoTags, func(tag string) bool { return strings.HasPrefix(tag, preparedName+":") }) && !isNameless(l.RepoTags) {
			continue // an image that somebody built on a layer has its label
		}
		add(Collected{Kind: "layer", Name: cmp.Or(strings.Join(l.RepoTags, " "), l.ID), Why: "two folders on top of an image; the next container of it makes them again"}, func() error {
			return e.removeLayer(ctx, l.ID)
		})
	}
	return done, errors.Join(errs...)
}

// usedImages returns the images that containers use.
func (e *Engine) usedImages(ctx context.Context) (map[string]bool, error) {
	var all []container.Summary
	err := e.call(ctx, func(ctx context.Context) (err error) {
		all, err = e.api.ContainerList(ctx, container.ListOptions{All: true})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("docker: list containers: %w", e.explain(ctx, err))
	}
	used := make(map[string]bool)
	for _, c := range all {
		used[c.ImageID] = true
	}
	return used, nil
}

// isNameless reports whether an image has lost its name, or never had one.
func isNameless(tags []string) bool {
	return !slices.ContainsFunc(tags, func(tag string) bool { return tag != "<none>:<none>" })
}

// removeLayer removes a prepared image.
func (e *Engine) removeLayer(ctx context.Context, id string) error {
	_, err := e.api.ImageRemove(ctx, id, image.RemoveOptions{})
	if err == nil || errdefs.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("docker: remove the layer %s: %w", id, e.explain(ctx, err))
}

// removeVolume removes a volume.
func (e *Engine) removeVolume(ctx context.Context, name string) error {
	e.mu.Lock()
	delete(e.volumes, name)
	e.mu.Unlock()
	err := e.api.VolumeRemove(ctx, name, false)
	if err == nil || errdefs.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("docker: remove the volume %s: %w", name, e.explain(ctx, err))
}

// volumesOf returns the volumes of a session, or of all if that is empty, that no container has.
func (e *Engine) volumesOf(ctx context.Context, session string) ([]*volume.Volume, error) {
	wanted := filters.NewArgs(filters.Arg("label", labelKind+"="+kindVolume), filters.Arg("dangling", "true"))
	if session != "" {
		wanted.Add("label", labelSession+"="+session)
	}
	var found volume.ListResponse
	err := e.call(ctx, func(ctx context.Context) (err error) {
		found, err = e.api.VolumeList(ctx, volume.ListOptions{Filters: wanted})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("docker: list volumes: %w", e.explain(ctx, err))
	}
	return found.Volumes, nil
}

// removeVolumes removes the volumes of a session whose container went without them.
func (e *Engine) removeVolumes(ctx context.Context, session string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	left, err := e.volumesOf(ctx, session)
	for _, v := range left {
		err = errors.Join(err, e.removeVolume(ctx, v.Name))
	}
	return err
}

// Discard removes whatever there is of a session, whoever made it: for one whose client has just ended in the middle of
// Open.
func (e *Engine) Discard(ctx context.Context, session string) error {
	name := namePrefix + session
	return errors.Join(e.remove(ctx, name), e.remove(ctx, name+loaderSuffix), e.removeVolumes(ctx, session))
}
