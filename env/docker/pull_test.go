package docker_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// puller opens environments of images in a registry of its own.
type puller struct {
	*daemons.Registry
	host   string
	engine *docker.Engine

	mu       sync.Mutex
	progress []string
}

// newPuller returns a puller whose user has a configuration, in which HOST stands for the registry.
func newPuller(t *testing.T, configuration string) *puller {
	t.Helper()
	p := &puller{Registry: daemons.NewRegistry(t), host: daemons.DockerHost(t)}
	_, restore := configured(t, strings.ReplaceAll(configuration, "HOST", p.Host()))
	defer restore() // an engine reads it once
	p.engine = connect(t)
	return p
}

// add makes an image, which is removed from the daemon at the end.
func (p *puller) add(t *testing.T, name, arch string) string {
	t.Helper()
	id := p.Add(t, name, arch)
	t.Cleanup(func() {
		out, err := exec.Command("docker", "-H", p.host, "rmi", "-f", id).CombinedOutput()
		if err != nil && !strings.Contains(string(out), "No such image") {
			t.Errorf("remove %s: %v\n%s", id, err, out)
		}
	})
	return id
}

// open opens an environment, which is closed at the end, and returns the ID of its image.
//
//nolint:revive // the test comes first, as everywhere
func (p *puller) open(t *testing.T, ctx context.Context, c docker.Config) (string, error) {
	t.Helper()
	policy := c.Pull
	c = config(t, c)
	c.Pull = policy
	c.Progress = func(line string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.progress = append(p.progress, line)
	}
	box, err := p.engine.Open(ctx, c)
	if err != nil {
		return "", err
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	return daemon(t, p.host, "inspect", "--format", "{{.Image}}", box.Container()), nil
}

// tries returns how often the daemon was asked to pull an image.
func (p *puller) tries() int { return len(p.lines("pulling ")) + len(p.lines("; again in ")) }

// lines returns the lines of the progress so far with a part.
func (p *puller) lines(part string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []string
	for _, line := range p.progress {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

// wantProblem checks an *docker.ImageError.
func wantProblem(t *testing.T, err error, reference string, want docker.ImageProblem) {
	t.Helper()
	var bad *docker.ImageError
	if !errors.As(err, &bad) || bad.Problem != want || bad.Reference != reference {
		t.Errorf("got %v, want the problem %q of %s", err, want, reference)
	}
}

// refuse answers every request with an error of registries.
func refuse(status int, code string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"errors":[{"code":%q,"message":"the registry's own words"}]}`, code)
	}
}

func TestPullMissing(t *testing.T) {
	p := newPuller(t, "{}")
	id := p.add(t, "tool:1", "")
	image := p.Host() + "/tool:1"
	got, err := p.open(t, t.Context(), docker.Config{Image: image}) // missing is the default
	if err != nil || got != id {
		t.Fatalf("the image is %s, %v; want %s", got, err, id)
	}
	if p.tries() != 1 || len(p.lines("Pull complete")) != 1 ||
		len(p.lines("Status: Downloaded newer image")) != 1 {
		t.Errorf("the progress is %q", p.lines(""))
	}
	asked := p.Requests("")
	if len(asked) == 0 {
		t.Error("the registry was not asked")
	}
	p.add(t, "tool:1", "") // which is not pulled
	if again, err := p.open(t, t.Context(), docker.Config{Image: image}); err != nil || again != id {
		t.Errorf("then it is %s, %v", again, err)
	}
	if more := p.Requests("")[len(asked):]; len(more) > 0 || p.tries() != 1 {
		t.Errorf("the registry is asked for an existing image: %q", more)
	}
}

func TestPullAlways(t *testing.T) {
	p := newPuller(t, "{}")
	image := p.Host() + "/tool:1"
	for range 2 {
		id := p.add(t, "tool:1", "")
		if got, err := p.open(t, t.Context(), docker.Config{
			Image: image,
			Pull:  docker.PullAlways,
		}); err != nil || got != id {
			t.Errorf("the image is %s, %v; want %s", got, err, id)
		}
	}
	p.Stop()
	_, err := p.open(t, t.Context(), docker.Config{Image: image, Pull: docker.PullAlways})
	wantProblem(t, err, image, docker.ImageUnreachable)
}

func TestPullNever(t *testing.T) {
	p := newPuller(t, "{}")
	p.add(t, "tool:1", "")
	_, err := p.open(t, t.Context(), docker.Config{
		Image: p.Host() + "/tool:1",
		Pull:  docker.PullNever,
	})
	wantProblem(t, err, p.Host()+"/tool:1", docker.ImageMissing)
	if asked := p.Requests(""); len(asked) > 0 || p.tries() > 0 {
		t.Errorf("the registry was asked: %q", asked)
	}
}

func TestPullBadReference(t *testing.T) {
	p := newPuller(t, "{}")
	for _, name := range []string{"UPPER:1", "tool:", "tool@sha256:short", "a b"} {
		image := p.Host() + "/" + name
		_, err := p.open(t, t.Context(), docker.Config{Image: image})
		wantProblem(t, err, image, docker.ImageBadReference)
	}
	if asked := p.Requests(""); len(asked) > 0 {
		t.Errorf("the registry was asked: %q", asked)
	}
}

func TestPullPlatform(t *testing.T) {
	foreign := "arm64"
	if runtime.GOARCH == foreign {
		foreign = "amd64"
	}
	for name, tt := range map[string]struct{ arch, platform string }{
		"the machine is another": {arch: foreign},
		"another is asked for":   {platform: "linux/" + foreign},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPuller(t, "{}")
			p.add(t, "tool:1", tt.arch)
			_, err := p.open(t, t.Context(), docker.Config{
				Image:    p.Host() + "/tool:1",
				Platform: tt.platform,
			})
			wantProblem(t, err, p.Host()+"/tool:1", docker.ImagePlatform)
			if p.tries() != 1 {
				t.Errorf("it was fetched %d times", p.tries())
			}
			_, err = p.open(t, t.Context(), docker.Config{
				Image: p.Host() + "/tool:1", Platform: tt.platform,
				Pull: docker.PullNever,
			})
			wantProblem(t, err, p.Host()+"/tool:1", docker.ImagePlatform)
		})
	}
}

// locked returns a registry's handler that needs a name and a password, directly or for a token.
func locked(r *daemons.Registry, token bool) http.HandlerFunc {
	const right = "token-of-the-test"
	return func(w http.ResponseWriter, req *http.Request) {
		user, password, _ := req.BasicAuth()
		valid := user == "ann" && password == "se:cret"
		challenge := `Basic realm="test"`
		switch {
		case !token && valid, token && req.Header.Get("Authorization") == "Bearer "+right:
			r.Serve(w, req)
			return
		case token && req.URL.Path == "/token" && valid:
			_, _ = fmt.Fprintf(w, `{"token":%q,"access_token":%q}`, right, right)
			return
		case token && req.URL.Path != "/token":
			challenge = fmt.Sprintf(
				`Bearer realm="http://%s/token",service="test",scope="repository:tool:pull"`, r.Host())
		}
		w.Header().Set("Www-Authenticate", challenge)
		refuse(http.StatusUnauthorized, "UNAUTHORIZED")(w, req)
	}
}

// helperScript is a program that the docker command asks for credentials.
const helperScript = `#!/bin/sh
[ "$1" = get ] || exit 2
read -r server
case $server in
*none*|"") echo "credentials not found in native keychain"; exit 1 ;;
esac
[ -e "$0.broken" ] && { echo "the keychain is locked"; exit 1; }
printf '{"ServerURL":"%s","Username":"ann","Secret":"se:cret"}' "$server"
`

func TestPullCredentials(t *testing.T) {
	bin := t.TempDir()
	helper := filepath.Join(bin, "docker-credential-pull-test")
	if err := os.WriteFile(helper, []byte(helperScript), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	login := func(name, password string) string {
		auth := base64.StdEncoding.EncodeToString([]byte(name + ":" + password))
		return `{"auths":{"HOST":{"auth":"` + auth + `"}}}`
	}
	for _, tt := range []struct {
		name, configuration string
		broken              bool
		want                docker.ImageProblem // none if it works
		tries               int
	}{
		{name: "none", configuration: "{}", want: docker.ImageDenied, tries: 1},
		{name: "wrong", configuration: login("ann", "wrong"), want: docker.ImageDenied, tries: 1},
		{name: "right", configuration: login("ann", "se:cret"), tries: 1},
		{name: "from a program", configuration: `{"credHelpers":{"HOST":"pull-test"}}`, tries: 1},
		{name: "from the store", configuration: `{"credsStore":"pull-test"}`, tries: 1},
		{
			name: "from a broken program", configuration: `{"credHelpers":{"HOST":"pull-test"}}`,
			broken: true, want: docker.ImageDenied, tries: 1,
		},
		{
			name:          "from a program that is missing",
			configuration: `{"credHelpers":{"HOST":"none-of-this-name"}}`, want: docker.ImageDenied,
			tries: 1,
		},
	} {
		for _, token := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, token %t", tt.name, token), func(t *testing.T) {
				if tt.broken {
					if err := os.WriteFile(helper+".broken", nil, 0o600); err != nil {
						t.Fatal(err)
					}
					defer os.Remove(helper + ".broken") //nolint:errcheck // the directory is temporary
				}
				p := newPuller(t, tt.configuration)
				id := p.add(t, "tool:1", "")
				p.Fault(locked(p.Registry, token))
				got, err := p.open(t, t.Context(), docker.Config{Image: p.Host() + "/tool:1"})
				if tt.want == "" && (err != nil || got != id) {
					t.Errorf("the image is %s, %v; want %s", got, err, id)
				}
				if tt.want != "" {
					wantProblem(t, err, p.Host()+"/tool:1", tt.want)
					t.Log(err)
				}
				if p.tries() != tt.tries {
					t.Errorf("%d tries, want %d", p.tries(), tt.tries)
				}
				for _, secret := range []string{
					"se:cret",
					base64.StdEncoding.EncodeToString([]byte("ann:se:cret")),
				} {
					if err != nil && strings.Contains(err.Error(), secret) || len(p.lines(secret)) > 0 {
						t.Error("the password is shown")
					}
				}
			})
		}
	}
}

// TestPullFaults has registries that fail in their ways; it waits for several of them at once.
func TestPullFaults(t *testing.T) {
	hangUp := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	words := "HOST/denied/unauthorized-not-found:toomanyrequests"
	for _, tt := range []struct {
		name, image string
		fault       http.HandlerFunc // of manifests
		passes      bool             // before the second try
		want        docker.ImageProblem
		tries       int
	}{
		{name: "no such tag", image: "HOST/tool:none", want: docker.ImageMissing, tries: 1},
		{name: "no such repository", image: "HOST/none:1", want: docker.ImageMissing, tries: 1},
		{
			name: "manifest unknown", image: "HOST/tool:1", fault: refuse(404, "MANIFEST_UNKNOWN"),
			want: docker.ImageMissing, tries: 1,
		},
		{
			name: "name unknown", image: "HOST/tool:1", fault: refuse(404, "NAME_UNKNOWN"),
			want: docker.ImageMissing, tries: 1,
		},
		{
			name: "denied", image: "HOST/tool:1", fault: refuse(403, "DENIED"), want: docker.ImageDenied,
			tries: 1,
		},
		{
			name: "too many requests", image: "HOST/tool:1", fault: refuse(429, "TOOMANYREQUESTS"),
			want: docker.ImageRateLimit, tries: 4,
		},
		{
			name: "too many requests for a time", image: "HOST/tool:1",
			fault: refuse(429, "TOOMANYREQUESTS"), passes: true, tries: 2,
		},
		{
			name: "a fault that stays", image: "HOST/tool:1", fault: refuse(500, "UNKNOWN"),
			want: docker.ImageUnreachable, tries: 4,
		},
		{
			name: "a fault that passes", image: "HOST/tool:1", fault: refuse(500, "UNKNOWN"), passes: true,
			tries: 2,
		},
		{
			name: "overload that passes", image: "HOST/tool:1", fault: refuse(503, "UNAVAILABLE"),
			passes: true, tries: 2,
		},
		{name: "it hangs up", image: "HOST/tool:1", fault: hangUp, passes: true, tries: 2},
		{
			name: "it hangs up, and the name has words in it", image: words, fault: hangUp,
			want: docker.ImageUnreachable, tries: 4,
		},
		{name: "nobody listens", image: "127.0.0.1:1/tool:1", want: docker.ImageUnreachable, tries: 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPuller(t, "{}")
			id := p.add(t, "tool:1", "")
			p.Fault(func(w http.ResponseWriter, req *http.Request) {
				passed := tt.passes && len(p.lines("; again in")) > 0
				if tt.fault == nil || passed || !strings.Contains(req.URL.Path, "/manifests/") {
					p.Serve(w, req)
					return
				}
				tt.fault(w, req)
			})
			t.Parallel()
			image := strings.ReplaceAll(tt.image, "HOST", p.Host())
			got, err := p.open(t, t.Context(), docker.Config{Image: image})
			if tt.want != "" {
				wantProblem(t, err, image, tt.want)
				t.Log(err)
			} else if err != nil || got != id {
				t.Errorf("the image is %s, %v; want %s", got, err, id)
			}
			if p.tries() != tt.tries || len(p.lines("; again in")) != tt.tries-1 {
				t.Errorf("%d tries, want %d: %q", p.tries(), tt.tries, p.lines(""))
			}
		})
	}
}

// TestPullCancelled gives up while a registry is silent. The request to the daemon ends with the
// engine.
func TestPullCancelled(t *testing.T) {
	hungUp := throughProxy(t, "/images/create")
	p := newPuller(t, "{}")
	p.add(t, "tool:1", "")
	asked := make(chan struct{}, 100)
	p.Fault(func(_ http.ResponseWriter, req *http.Request) {
		asked <- struct{}{}
		<-req.Context().Done()
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("given up")
	ended := make(chan error, 1)
	go func() {
		_, err := p.open(t, ctx, docker.Config{Image: p.Host() + "/tool:1"})
		ended <- err
	}()
	await(t, asked, "the registry is not asked")
	cancel(why)
	if err := await(t, ended, "it hangs"); !errors.Is(err, why) {
		t.Errorf("it ended with %v", err)
	}
	if err := p.engine.Close(); err != nil {
		t.Error(err)
	}
	await(t, hungUp, "the request continues")
}

// TestPullOnce opens environments of an image concurrently. The image is pulled once, also when the
// first caller gives up.
func TestPullOnce(t *testing.T) {
	p := newPuller(t, "{}")
	id := p.add(t, "tool:1", "")
	wanted, goOn := make(chan struct{}, 100), make(chan struct{})
	p.Fault(func(w http.ResponseWriter, req *http.Request) {
		wanted <- struct{}{}
		<-goOn
		p.Serve(w, req)
	})
	var firstLines atomic.Int64
	c := config(t, docker.Config{Image: p.Host() + "/tool:1"})
	c.Pull = docker.PullAlways
	c.Progress = func(string) { firstLines.Add(1) }
	first, cancel := context.WithCancel(t.Context())
	defer cancel()
	gaveUp := make(chan error, 1)
	go func() {
		_, err := p.engine.Open(first, c)
		gaveUp <- err
	}()
	<-wanted
	const others = 5
	waiting, ended := make(chan struct{}, others), make(chan error, others)
	for range others {
		go func() {
			c := c
			c.Progress = func(line string) {
				if strings.HasPrefix(line, "pulling ") {
					waiting <- struct{}{}
				}
			}
			box, err := p.engine.Open(t.Context(), c)
			if err == nil {
				got := daemon(t, p.host, "inspect", "--format", "{{.Image}}", box.Container())
				if err = box.Close(); got != id {
					t.Errorf("the image is %s, want %s", got, id)
				}
			}
			ended <- err
		}()
	}
	for range others {
		await(t, waiting, "a waiting caller gets no progress")
	}
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	before := firstLines.Load()
	close(goOn)
	for range others {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	asked := p.Requests("")
	logins := slices.DeleteFunc(slices.Clone(asked), func(a string) bool { return a != "GET /v2/" })
	if len(p.Requests("GET /v2/tool/blobs/")) != 2 || len(logins) != 1 {
		t.Errorf("it was pulled more than once: %q", asked)
	}
	if firstLines.Load() != before {
		t.Error("the caller that gave up gets more progress")
	}
}

// TestPullCut breaks the connection in the middle of a layer, with a daemon that does not try again
// by itself.
func TestPullCut(t *testing.T) {
	full(t, "a daemon of its own, and waits between tries")
	d := daemons.NewDocker(t, daemons.DockerConfig{Args: []string{"--max-download-attempts=1"}})
	t.Setenv(daemons.HostVar, d.Host())
	p := newPuller(t, "{}")
	id := p.add(t, "tool:1", "")
	p.Fault(func(w http.ResponseWriter, req *http.Request) {
		if strings.Contains(req.URL.Path, "/blobs/") && len(p.lines("; again in")) == 0 {
			w = &short{ResponseWriter: w, left: 100_000}
		}
		p.Serve(w, req)
	})
	if got, err := p.open(t, t.Context(), docker.Config{Image: p.Host() + "/tool:1"}); err != nil ||
		got != id {
		t.Errorf("the image is %s, %v; want %s", got, err, id)
	}
	if p.tries() != 2 {
		t.Errorf("%d tries: %q", p.tries(), p.lines(""))
	}
}

// short is an answer that breaks off.
type short struct {
	http.ResponseWriter
	left int
}

func (s *short) Write(p []byte) (int, error) {
	if s.left -= len(p); s.left < 0 {
		_, _ = s.ResponseWriter.Write(p[:len(p)/2])
		panic(http.ErrAbortHandler)
	}
	return s.ResponseWriter.Write(p)
}
