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

	"github.com/sandboxagent/sandboxagent/env/remote"
)

const (
	// creationGrace is the maximum time between the creation of a volume and of its container.
	creationGrace = 10 * time.Second
	// loaderTimeout is the maximum age of a loader container.
	loaderTimeout = 10 * time.Minute
)

// Listed is a container of this package. Its State is the daemon's: created, running, exited, dead.
// Its Owner is user@machine of the creator.
type Listed struct {
	remote.Listed
	// ID and Name are the container's; Session is a part of the name.
	ID, Name string
	Image    string
	// Own reports that this user on this machine created it.
	Own bool
	// Abandoned reports that the container runs, and that its creator, a process of this user and
	// machine, has ended.
	Abandoned bool
}

// List returns the containers of this package on the daemon, of all owners, the oldest first.
func (e *Engine) List(ctx context.Context) ([]Listed, error) {
	found, err := e.containers(ctx, filters.NewArgs(filters.Arg("label", labelKind)))
	if err != nil {
		return nil, err
	}
	list := make([]Listed, 0, len(found))
	me, now := remote.Owner(), time.Now()
	for _, c := range found {
		name := ""
		if len(c.Names) > 0 {
			name = strings.TrimPrefix(c.Names[0], "/")
		}
		session, ok := sessionOf(name, c.Labels)
		if !ok { // an image can have such labels
			continue
		}
		ttl, _ := time.ParseDuration(c.Labels[labelLease]) // loaders have no TTL
		l := Listed{
			Listed: remote.Listed{
				Session: session, State: c.State, Created: time.Unix(c.Created, 0), TTL: ttl,
				Owner: c.Labels[labelOwner],
			},
			ID: c.ID, Name: name, Image: cmp.Or(c.Labels[labelImage], c.Image),
			Own: c.Labels[labelOwner] == me,
		}
		l.assess(c.Labels, now, l.Own && remote.ProcessEnded(c.Labels[labelProcess]))
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b Listed) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.Name, b.Name))
	})
	return list, nil
}

// containers returns the containers of the daemon that match a filter.
func (e *Engine) containers(
	ctx context.Context, only filters.Args,
) (found []container.Summary, err error) {
	err = e.call(ctx, func(ctx context.Context) (err error) {
		found, err = e.api.ContainerList(ctx, container.ListOptions{All: true, Filters: only})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("docker: list containers: %w", e.explain(ctx, err))
	}
	return found, nil
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

// assess sets Garbage, Abandoned and Reason. orphan reports that the creating process has ended.
func (l *Listed) assess(labels map[string]string, now time.Time, orphan bool) {
	by, err := time.Parse(time.RFC3339, labels[labelReady])
	live := slices.Contains([]container.ContainerState{
		container.StateRunning, container.StatePaused, container.StateRestarting,
	}, l.State)
	switch {
	case live && orphan:
		l.Abandoned = l.State == container.StateRunning
		l.Reason = "its client has ended; it ends " + labels[labelLease] + " after that"
	case live:
		l.Reason = "in use" // without a client it ends by itself
	case l.State == container.StateRemoving:
		l.Reason = "it is being removed"
	case l.State != container.StateCreated:
		l.Garbage, l.Reason = true, "it has ended"
	case labels[labelKind] == kindLoader && now.Sub(l.Created) > loaderTimeout:
		l.Garbage, l.Reason = true, "its loader has died"
	case labels[labelKind] == kindLoader:
		l.Reason = "it is being filled"
	case orphan:
		l.Garbage, l.Reason = true, "its client ended before it started"
	case err != nil || now.After(by):
		l.Garbage, l.Reason = true, "it was never started"
	default:
		l.Reason = "it is about to start"
	}
}

// Collect removes the remains of clients that died: containers, and volumes without a container.
// With o.All it also removes containers that are Abandoned, and the volumes with helpers and the
// layers on images, which later containers would use. It never removes an object in use.
func (e *Engine) Collect(
	ctx context.Context, o remote.CollectOptions,
) ([]remote.Collected, error) {
	list, err := e.List(ctx)
	if err != nil {
		return nil, err
	}
	return o.Collect(func(add func(kind, name, reason string, remove func() error)) error {
		for _, l := range list {
			if l.Garbage || o.All && l.Abandoned {
				add("container", l.Name, l.Reason, func() error { return e.remove(ctx, l.ID) })
			}
		}
		addVolume := func(name, reason string) {
			add("volume", name, reason, func() error { return e.removeVolume(ctx, name) })
		}
		left, err := e.unusedVolumes(ctx, kindVolume, "")
		for _, v := range left {
			// The container of a new one may be in creation.
			if created, err := time.Parse(time.RFC3339, v.CreatedAt); err != nil ||
				time.Since(created) >= creationGrace {
				addVolume(v.Name, "its container is gone")
			}
		}
		if err != nil || !o.All {
			return err
		}
		helpers, err := e.unusedVolumes(ctx, kindHelper, "")
		for _, v := range helpers {
			addVolume(v.Name, "no container uses this helper; the next one stores it again")
		}
		layers, lerr := e.unusedLayers(ctx)
		for _, l := range layers {
			name := cmp.Or(strings.Join(l.RepoTags, " "), l.ID)
			add("layer", name, "two directories on top of an image; the next container of it creates them "+
				"again", func() error { return e.removeLayer(ctx, l.ID) })
		}
		return errors.Join(err, lerr)
	})
}

// unusedLayers returns the prepared images that no container uses and no user has named.
func (e *Engine) unusedLayers(ctx context.Context) ([]image.Summary, error) {
	only := filters.NewArgs(filters.Arg("label", labelKind+"="+kindPrepared))
	layers, err := e.api.ImageList(ctx, image.ListOptions{Filters: only})
	if err != nil {
		return nil, fmt.Errorf("docker: list images: %w", e.explain(ctx, err))
	}
	containers, err := e.containers(ctx, filters.NewArgs())
	return slices.DeleteFunc(layers, func(l image.Summary) bool {
		uses := func(c container.Summary) bool { return c.ImageID == l.ID }
		prepared := func(tag string) bool { return strings.HasPrefix(tag, preparedName+":") }
		// An image that a user built on a layer inherits its label.
		return err != nil || slices.ContainsFunc(containers, uses) ||
			!slices.ContainsFunc(l.RepoTags, prepared) && !isNameless(l.RepoTags)
	}), err
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

// unusedVolumes returns the volumes of a kind that no container uses: those of a session, or all if
// it is empty.
func (e *Engine) unusedVolumes(
	ctx context.Context, kind, session string,
) ([]*volume.Volume, error) {
	only := filters.NewArgs(filters.Arg("label", labelKind+"="+kind), filters.Arg("dangling", "true"))
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
	left, err := e.unusedVolumes(ctx, kindVolume, session)
	for _, v := range left {
		err = errors.Join(err, e.removeVolume(ctx, v.Name))
	}
	return err
}

// Discard removes all containers and volumes of a session, for a client that died during Open.
func (e *Engine) Discard(ctx context.Context, session string) error {
	var errs []error
	for _, s := range []string{session, session + fillSuffix} {
		name := namePrefix + s
		errs = append(errs, e.remove(ctx, name), e.remove(ctx, name+loaderSuffix),
			e.removeVolumes(ctx, s))
	}
	return errors.Join(errs...)
}
