package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"

	"github.com/sandboxagent/sandboxagent/images"
)

const (
	// maxPulls bounds the attempts to pull from a failing registry.
	maxPulls = 4
	// pullIdleTimeout bounds the silence of a daemon that pulls an image.
	pullIdleTimeout = 5 * time.Minute
	// dockerHub is the default registry in image names, and hubLogin its name in the docker command's
	// configuration.
	dockerHub = "docker.io"
	hubLogin  = "https://index.docker.io/v1/"
)

// image returns the image of a container and its reference on the daemon. It pulls the image as
// c.Pull permits.
func (e *Engine) image(ctx context.Context, c Config) (image.InspectResponse, string, error) {
	ref := c.Image
	if ref == "" {
		found, err := e.findImage(ctx, images.DefaultReference)
		if err == nil { // built here, on no registry
			return found, images.DefaultReference, e.checkPlatform(ctx, c, images.DefaultReference, found)
		}
		ref = images.PublicReference
		c.Warn(fmt.Sprintf("the image is %s, which may lack git and other tools; the daemon lacks %s",
			ref, images.DefaultReference))
	}
	if c.Pull != PullAlways {
		found, err := e.findImage(ctx, ref)
		switch {
		case err == nil && e.checkPlatform(ctx, c, ref, found) == nil:
			return found, ref, nil
		case err == nil && (c.Pull == PullNever || c.Platform == ""):
			return found, ref, e.checkPlatform(ctx, c, ref, found)
		case err != nil && !errdefs.IsNotFound(err):
			return found, ref, e.explain(ctx, err)
		case err != nil && c.Pull == PullNever:
			return found, ref, &ImageError{
				Reference: ref, Problem: ImageMissing,
				Hint: "the daemon lacks it, and the pull policy is never",
			}
		}
	}
	if err := e.pull(ctx, c, ref); err != nil {
		return image.InspectResponse{}, ref, err
	}
	found, err := e.findImage(ctx, ref)
	if err != nil {
		return found, ref, e.explain(ctx, err)
	}
	return found, ref, e.checkPlatform(ctx, c, ref, found)
}

// checkPlatform returns an error for an image that cannot run on the daemon.
func (e *Engine) checkPlatform(
	ctx context.Context, c Config, ref string, found image.InspectResponse,
) error {
	bad := func(hint string) error {
		err := fmt.Errorf("it is for %q", found.Os+"/"+found.Architecture)
		return &ImageError{Reference: ref, Problem: ImagePlatform, Hint: hint, Err: err}
	}
	if found.Os != "" && found.Os != "linux" {
		return bad("the environment is Linux")
	}
	want, err := c.platform()
	if err != nil {
		return err
	}
	if want != nil {
		if want.Architecture != found.Architecture {
			return bad("the configured platform is " + c.Platform)
		}
		return nil
	}
	arch, err := e.Arch(ctx)
	if err != nil {
		return err
	}
	if arch != found.Architecture && found.Architecture != "" {
		return bad("the daemon's machine is " + arch + "; the platform linux/" + found.Architecture +
			" runs where emulation is set up")
	}
	return nil
}

// pull downloads an image, once for all concurrent callers. It continues when a caller's context
// ends, until the engine is closed. The progress of a shared download is reported to the caller
// that started it.
func (e *Engine) pull(ctx context.Context, c Config, ref string) error {
	progress := func(line string) {
		if c.Progress != nil && ctx.Err() == nil {
			c.Progress(line)
		}
	}
	progress("pulling " + ref)
	_, err := e.share(ctx, "pull "+ref+" "+c.Platform, func() (any, error) {
		return nil, e.pullRetrying(e.life, c.Platform, ref, progress)
	})
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("docker: pull %s: %w", ref, context.Cause(ctx))
	}
	return err
}

// pullRetrying pulls an image. It retries after network faults and rate limits.
func (e *Engine) pullRetrying(
	ctx context.Context, platform, ref string, progress func(string),
) error {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return &ImageError{Reference: ref, Problem: ImageBadReference, Err: err}
	}
	domain := reference.Domain(named)
	key := domain
	if domain == dockerHub {
		key = hubLogin
	}
	auth, err := e.config.login(key)
	if err != nil {
		err = fmt.Errorf("read credentials for %s: %w", domain, err)
		const hint = "docker login stores them"
		return &ImageError{Reference: ref, Problem: ImageDenied, Err: err, Hint: hint}
	}
	again := func(err error, d time.Duration) {
		progress(fmt.Sprintf("%v; again in %s", err, d.Round(time.Second)))
	}
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = time.Second, 10*time.Second
	_, err = backoff.Retry(ctx, func() (struct{}, error) {
		err := e.pullOnce(ctx, platform, named.String(), auth, progress)
		var known *ImageError
		if errors.As(err, &known) {
			known.Reference = ref
			if known.Problem == ImageUnreachable || known.Problem == ImageRateLimit {
				return struct{}{}, err
			}
		}
		if err != nil {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(wait), backoff.WithMaxTries(maxPulls), backoff.WithNotify(again))
	return err
}

// pullOnce has the daemon pull an image.
func (e *Engine) pullOnce(
	ctx context.Context, platform, ref, auth string, progress func(string),
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(pullIdleTimeout, func() {
		cancel(fmt.Errorf("no progress for %s", pullIdleTimeout))
	})
	defer watchdog.Stop()
	body, err := e.api.ImagePull(ctx, ref, image.PullOptions{RegistryAuth: auth, Platform: platform})
	if err != nil {
		return e.imageError(ctx, ref, err)
	}
	defer body.Close() //nolint:errcheck // opened for reading
	err = readProgress(&idleReader{body, watchdog}, progress)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return e.imageError(ctx, ref, err)
	}
	return nil
}

// idleReader restarts a timer with each Read.
type idleReader struct {
	io.Reader
	watchdog *time.Timer
}

func (w *idleReader) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.watchdog.Reset(pullIdleTimeout)
	return n, err
}

// streamLine is a line of the daemon's progress of a pull or a build.
type streamLine struct {
	Status string `json:"status"`
	ID     string `json:"id"`
	Stream string `json:"stream"`
	Error  string `json:"error"`
}

// readProgress reads the progress of a pull or a build to its end and reports changes. It returns
// the daemon's error.
func readProgress(r io.Reader, progress func(string)) error {
	if progress == nil {
		progress = func(string) {}
	}
	last := make(map[string]string)
	dec := json.NewDecoder(r)
	for {
		var line streamLine
		switch err := dec.Decode(&line); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read the daemon's progress: %w", err)
		}
		switch {
		case line.Error != "":
			return errors.New(line.Error)
		case line.Stream != "":
			if text := strings.TrimRight(line.Stream, "\n"); text != "" {
				progress(text)
			}
		case line.ID == "":
			progress(line.Status)
		case last[line.ID] != line.Status: // else only the percentage changes
			last[line.ID] = line.Status
			progress(line.ID + ": " + line.Status)
		}
	}
}

// imageError classifies a failed pull by its text, the only form in which the daemon passes a
// registry's error on.
func (e *Engine) imageError(ctx context.Context, ref string, err error) error {
	if isUnreachable(err) || errors.Is(err, context.Canceled) {
		return e.explain(ctx, err)
	}
	text := removeReference(strings.ToLower(err.Error()), ref)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(text, p) })
	}
	problem, hint := ImageUnreachable, ""
	switch {
	case has("no space left on device"):
		return fmt.Errorf("docker: image %s: %w", ref, e.explain(ctx, err))
	case has("no matching manifest", "does not match the specified platform"):
		problem, hint = ImagePlatform, "the registry has it for other platforms only"
	case has("toomanyrequests", "rate limit"):
		problem, hint = ImageRateLimit, "log in with docker login, or use a mirror"
	case has("pull access denied", "repository does not exist"):
		problem, hint = ImageDenied, "no such image, or it needs docker login"
	case has("unauthorized", "authentication required", "denied", "no basic auth credentials",
		"forbidden"):
		problem, hint = ImageDenied, "docker login stores credentials"
	case has("manifest unknown", "not found", "name unknown"):
		problem, hint = ImageMissing, "check the name and the tag"
	case has("invalid reference format", "repository name must be"):
		problem = ImageBadReference
	case errdefs.IsInvalidArgument(err):
		problem = ImageBadReference
	}
	return &ImageError{Reference: ref, Problem: problem, Hint: hint, Err: err}
}

// removeReference removes the name of an image from an error text, whose words could look like a
// problem.
func removeReference(text, ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return text
	}
	for _, part := range []string{
		ref, named.String(), named.Name(), reference.Path(named), reference.Domain(named),
	} {
		text = strings.ReplaceAll(text, strings.ToLower(part), "")
	}
	if tagged, ok := named.(reference.Tagged); ok {
		text = strings.ReplaceAll(text, "/manifests/"+strings.ToLower(tagged.Tag()), "")
	}
	return text
}

// login returns the docker command's credentials for a registry, encoded for the daemon.
func login(file *configfile.ConfigFile, registryName string) (string, error) {
	found, err := file.GetAuthConfig(registryName)
	if err != nil {
		return "", err
	}
	if found.Username == "" && found.IdentityToken == "" && found.RegistryToken == "" {
		return "", nil
	}
	return registry.EncodeAuthConfig(registry.AuthConfig{
		Username: found.Username, Password: found.Password, Auth: found.Auth,
		ServerAddress: found.ServerAddress, IdentityToken: found.IdentityToken,
		RegistryToken: found.RegistryToken,
	})
}
