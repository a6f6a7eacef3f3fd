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

// creationGrace is the maximum time between the creation of a volume and of its container.
const creationGrace = 10 * time.Second

// loaderTimeout is the maximum age of a loader container.
const loaderTimeout = 10 * time.Minute

// Sandbox is a container of this package.
type Sandbox struct {
	// ID and Name are the container's; Session is a part of the name.
	ID, Name, Session string
	Image             string
	// State is the daemon's: created, running, exited, dead.
	State   string
	Created time.Time
	// Owner is user@machine of the creator.
	Owner string
	// Mine: the owner is this user on this machine.
	Mine bool
	// Garbage: the container is of no use any more. Why is the reason for either.
	Garbage bool
	Why     string
}

// List returns the containers of this package on the daemon, of all owners, the oldest first.
func (e *Engine) List(ctx context.Context) ([]Sandbox, error) {
	var found []container.Summary
	only := filters.NewArgs(filters.Arg("label", labelKind))
	err := e.call(ctx, func(ctx context.Context) (err error) {
		found, err = e.api.ContainerList(ctx, container.ListOptions{All: true, Filters: only})
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
		if !ok { // an image can pass such labels on
			continue
		}
		s := Sandbox{
			ID: c.ID, Name: name, Session: session, State: c.State, Created: time.Unix(c.Created, 0),
			Image: cmp.Or(c.Labels[labelImage], c.Image), Owner: c.Labels[labelOwner],
		}
		s.Mine = s.Owner == me
		s.Garbage, s.Why = assess(s, c.Labels, now)
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b Sandbox) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	return list, nil
}

// sessionOf returns the session of a container of this package, whose name and labels match.
func sessionOf(name string, labels map[string]string) (session string, ok bool) {
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

// assess decides whether a container is garbage.
func assess(s Sandbox, labels map[string]string, now time.Time) (garbage bool, why string) {
	switch {
	case s.State == container.StateRunning, s.State == container.StatePaused,
		s.State == container.StateRestarting:
		// Without a client it ends by itself.
		if s.Mine && processEnded(labels[labelProcess]) {
			return false, "its client has ended; it ends " + labels[labelLease] + " after that"
		}
		return false, "in use"
	case s.State == container.StateRemoving:
		return false, "it is being removed"
	case s.State != container.StateCreated:
		return true, "it has ended"
	case labels[labelKind] == kindLoader:
		// It has no other labels, which would become labels of the committed image.
		if now.Sub(s.Created) > loaderTimeout {
			return true, "its loader has died"
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
	// All removes also running containers of this user and machine whose creating process has ended,
	// and what is kept for later containers: volumes with helpers, and layers on images. What is in
	// use is never removed.
	All bool
}

// Collected is an object that Collect removed, or would remove.
type Collected struct {
	// Kind is "container", "volume" or "layer".
	Kind, Name, Why string
	// Err is the error of the removal.
	Err error
}

// Collect removes what clients that died left behind. It returns the removed objects, and those
// that it failed to remove, whose errors are also joined in the error.
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
			add(Collected{Kind: "container", Name: s.Name, Why: s.Why}, func() error {
				return e.remove(ctx,
					s.ID)
			})
		}
	}
	left, err := e.volumesOf(ctx, "")
	if err != nil {
		return done, errors.Join(append(errs, err)...)
	}
	for _, v := range left {
		if created, err := time.Parse(time.RFC3339, v.CreatedAt); err == nil &&
			time.Since(created) < creationGrace {
			continue // its container may be in creation
		}
		add(Collected{Kind: "volume", Name: v.Name, Why: "its container is gone"},
			func() error { return e.removeVolume(ctx, v.Name) })
	}
	if !opts.All {
		return done, errors.Join(errs...)
	}
	unused := filters.NewArgs(filters.Arg("label", labelKind+"="+kindHelper), filters.Arg("dangling",
		"true"))
	volumes, err := e.api.VolumeList(ctx, volume.ListOptions{Filters: unused})
	if err != nil {
		return done, errors.Join(append(errs, fmt.Errorf("docker: list volumes: %w", e.explain(ctx,
			err)))...)
	}
	for _, v := range volumes.Volumes {
		const why = "no container uses this helper; the next one stores it again"
		add(Collected{Kind: "volume", Name: v.Name, Why: why}, func() error {
			return e.removeVolume(ctx,
				v.Name)
		})
	}
	layers, err := e.api.ImageList(ctx, image.ListOptions{Filters: filters.NewArgs(filters.Arg("label",
		labelKind+"="+kindPrepared))})
	if err != nil {
		return done, errors.Join(append(errs, fmt.Errorf("docker: list images: %w", e.explain(ctx,
			err)))...)
	}
	used, err := e.usedImages(ctx)
	if err != nil {
		return done, errors.Join(append(errs, err)...)
	}
	for _, l := range layers {
		if used[l.ID] {
			continue
		}
		prepared := func(tag string) bool { return strings.HasPrefix(tag, preparedName+":") }
		if !slices.ContainsFunc(l.RepoTags, prepared) && !isNameless(l.RepoTags) {
			continue // an image that a user built on a layer inherits its label
		}
		const why = "two directories on top of an image; the next container of it creates them again"
		name := cmp.Or(strings.Join(l.RepoTags, " "), l.ID)
		add(Collected{Kind: "layer", Name: name, Why: why}, func() error {
			return e.removeLayer(ctx,
				l.ID)
		})
	}
	return done, errors.Join(errs...)
}

// usedImages returns the IDs of the images that containers use.
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

// isNameless reports whether an image has no name.
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

// volumesOf returns the unused volumes of a session, or of all sessions if it is empty.
func (e *Engine) volumesOf(ctx context.Context, session string) ([]*volume.Volume, error) {
	only := filters.NewArgs(filters.Arg("label", labelKind+"="+kindVolume), filters.Arg("dangling",
		"true"))
	if session != "" {
		only.Add("label", labelSession+"="+session)
	}
	var found volume.ListResponse
	err := e.call(ctx, func(ctx context.Context) (err error) {
		found, err = e.api.VolumeList(ctx, volume.ListOptions{Filters: only})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("docker: list volumes: %w", e.explain(ctx, err))
	}
	return found.Volumes, nil
}

// removeVolumes removes the volumes of a session that its container left behind.
func (e *Engine) removeVolumes(ctx context.Context, session string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	left, err := e.volumesOf(ctx, session)
	for _, v := range left {
		err = errors.Join(err, e.removeVolume(ctx, v.Name))
	}
	return err
}

// Discard removes all containers and volumes of a session, for a client that died during Open.
func (e *Engine) Discard(ctx context.Context, session string) error {
	name := namePrefix + session
	return errors.Join(e.remove(ctx, name), e.remove(ctx, name+loaderSuffix), e.removeVolumes(ctx,
		session))
}
