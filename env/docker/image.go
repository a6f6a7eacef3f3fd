package docker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/cli/cli/config/configfile"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"

	"github.com/sandboxagent/sandboxagent/images"
)

const (
	// pullTries is how often a registry is asked that cannot be reached, or has a fault.
	pullTries = 4
	// silence is how long a daemon that fetches an image may say nothing.
	silence = 5 * time.Minute
	// dockerHub is what the default registry is called in the names of images, and hubLogin in the docker command's
	// configuration.
	dockerHub = "docker.io"
	hubLogin  = "https://index.docker.io/v1/"
)

// architectures are names that systems give processors, by those of the Go toolchain.
var architectures = map[string]string{"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}

// image returns the image that a container is to be made of, and the reference by which the daemon knows it. It is fetched
// as far as c.Pull allows.
func (e *Engine) image(ctx context.Context, c Config) (image.InspectResponse, string, error) {
	ref := c.Image
	if ref == "" {
		found, err := e.findImage(ctx, images.DefaultReference)
		if err == nil { // it was built, so that there is no registry to fetch it from
			return found, images.DefaultReference, e.checkPlatform(ctx, c, images.DefaultReference, found)
		}
		ref = images.PublicReference
		c.note(fmt.Sprintf("the image is %s, since %s has not been built; it may lack git and other tools (\"sandboxagent image build base\" builds one that has them)",
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
			return found, ref, &ImageError{Reference: ref, Problem: ImageMissing, Hint: "the daemon does not have it, and the pull policy is never"}
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

// note tells the caller of something that is no error.
func (c Config) note(line string) {
	if c.Note != nil {
		c.Note(line)
	}
}

// checkPlatform reports an image that cannot run here.
func (e *Engine) checkPlatform(ctx context.Context, c Config, ref string, found image.InspectResponse) error {
	bad := func(hint string) error {
		return &ImageError{Reference: ref, Problem: ImagePlatform, Hint: hint, Err: fmt.Errorf("it is for %s/%s", found.Os, found.Architecture)}
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
	arch, err := e.arch(ctx)
	if err != nil {
		return err
	}
	if arch != found.Architecture && found.Architecture != "" {
		return bad("the daemon's machine is " + arch + "; the platform linux/" + found.Architecture + " runs where emulation is set up")
	}
	return nil
}

// arch returns the processor of the daemon's machine, as the Go toolchain names it.
func (e *Engine) arch(ctx context.Context) (string, error) {
	e.mu.Lock()
	known := e.machine
	e.mu.Unlock()
	if known != "" {
		return known, nil
	}
	var version types.Version
	err := e.call(ctx, func(ctx context.Context) (err error) {
		version, err = e.api.ServerVersion(ctx)
		return err
	})
	if err != nil {
		return "", e.explain(ctx, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.machine = cmp.Or(architectures[version.Arch], version.Arch)
	return e.machine, nil
}

// pull downloads an image, once for all concurrent callers. It continues when a caller's context ends, until
// the engine is closed. The progress of a shared download is reported to the caller that started it.
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
	return err
}

// pullRetrying fetches an image and tries again where that may help: not where the registry says no.
func (e *Engine) pullRetrying(ctx context.Context, platform, ref string, progress func(string)) error {
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
		return &ImageError{Reference: ref, Problem: ImageDenied, Err: fmt.Errorf("the credentials for %s: %w", domain, err), Hint: "docker login stores them"}
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
	}, backoff.WithBackOff(wait), backoff.WithMaxTries(pullTries), backoff.WithNotify(func(err error, d time.Duration) {
		progress(fmt.Sprintf("%v; again in %s", err, d.Round(time.Second)))
	}))
	return err
}

// pullOnce asks the daemon to fetch an image and follows it until it is there.
func (e *Engine) pullOnce(ctx context.Context, platform, ref, auth string, progress func(string)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(silence, func() { cancel(fmt.Errorf("the daemon has said nothing for %s", silence)) })
	defer watchdog.Stop()
	said, err := e.api.ImagePull(ctx, ref, image.PullOptions{RegistryAuth: auth, Platform: platform})
	if err != nil {
		return e.imageError(ctx, ref, err)
	}
	defer said.Close() //nolint:errcheck // it was only read
	err = followStream(&watched{said, watchdog}, progress)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return e.imageError(ctx, ref, err)
	}
	return nil
}

// watched is a reader that keeps a watchdog from barking.
type watched struct {
	io.Reader
	watchdog *time.Timer
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	w.watchdog.Reset(silence)
	return n, err
}

// streamLine is one line of what the daemon says while it fetches or builds an image.
type streamLine struct {
	Status string `json:"status"`
	ID     string `json:"id"`
	Stream string `json:"stream"`
	Error  string `json:"error"`
	Aux    struct {
		ID string `json:"ID"`
	} `json:"aux"`
}

// followStream reads what the daemon says, to its end, and hands on what is new in it. The error is the daemon's, if it
// tells of one.
func followStream(r io.Reader, progress func(string)) error {
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
			return fmt.Errorf("what the daemon says: %w", err)
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
		case last[line.ID] != line.Status: // the rest is how far it has got
			last[line.ID] = line.Status
			progress(line.ID + ": " + line.Status)
		}
	}
}

// imageError finds out what is wrong with an image. What registries say reaches this side as text only.
func (e *Engine) imageError(ctx context.Context, ref string, err error) error {
	if isUnreachable(err) || errors.Is(err, context.Canceled) {
		return e.explain(ctx, err)
	}
	text := withoutName(strings.ToLower(err.Error()), ref)
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(text, p) {
				return true
			}
		}
		return false
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
		problem, hint = ImageDenied, "there is none of this name, or it takes docker login"
	case has("unauthorized", "authentication required", "denied", "no basic auth credentials", "forbidden"):
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

// withoutName takes the name of an image out of a text: words in it say nothing of what is wrong.
func withoutName(text, ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return text
	}
	for _, part := range []string{ref, named.String(), named.Name(), reference.Path(named), reference.Domain(named)} {
		text = strings.ReplaceAll(text, strings.ToLower(part), "")
	}
	if tagged, ok := named.(reference.Tagged); ok {
		text = strings.ReplaceAll(text, "/manifests/"+strings.ToLower(tagged.Tag()), "")
	}
	return text
}

// login returns the credentials of the docker command for a registry, encoded for the daemon.
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
		ServerAddress: found.ServerAddress, IdentityToken: found.IdentityToken, RegistryToken: found.RegistryToken,
	})
}
