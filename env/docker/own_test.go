package docker_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/docker"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// output returns the output of a script that must succeed.
func output(t *testing.T, box env.Environment, script string) string {
	t.Helper()
	out, res, err := env.Output(t.Context(), box, sh(script), env.OutputOptions{Combined: true})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%s: %+v, %v\n%s", script, res, err, out.Stdout.Bytes())
	}
	return string(out.Stdout.Bytes())
}

// TestOwnWorkDir works in directories of images.
func TestOwnWorkDir(t *testing.T) {
	t.Parallel()
	host, e := daemons.DockerHost(t), connect(t)
	const image, plain = "sandboxagent-test-own:latest", "sandboxagent-base:latest"
	if _, err := e.FindImage(t.Context(), plain); err != nil {
		daemons.Missing(t, "docker", err.Error())
	}
	// A git directory elsewhere belongs to another user, even if the working tree does not.
	buildImage(t, host, image, "FROM "+plain+`
USER root
RUN mkdir /store && git init -q --separate-git-dir=/store/git /repo && cd /repo \
    && mkdir -m 2750 deep && echo 1 >deep/file && ln deep/file hard && ln -s deep/file soft \
    && echo '#!/bin/sh' >run && chmod 4751 run && chmod 1775 . && ln -s /repo /link \
    && head -c 40000000 /dev/zero >large && mkdir -p /root/.config/git \
    && git config --file /root/.config/git/config user.name Image
`)
	for _, user := range []string{docker.DefaultUser, "4711:815", "root"} {
		t.Run(strings.ReplaceAll(user, ":", "_"), func(t *testing.T) {
			t.Parallel()
			box := open(t, e, docker.Config{Image: image, User: user, WorkDir: "/repo", OwnWorkDir: true})
			if user == "root" {
				user = "0:0"
			}
			want := "1775 U .\n2750 U deep\n644 U deep/file\n644 U hard\n4751 U run\n777 U soft\n"
			got := output(t, box, "stat -c '%a %u:%g %n' . deep deep/file hard run soft")
			if got != strings.ReplaceAll(want, "U", user) {
				t.Errorf("got %s", got)
			}
			got = output(t, box, "test hard -ef deep/file && readlink soft && echo 2 >>hard && cat soft "+
				"&& rm run large && git status --porcelain")
			if got != "deep/file\n1\n2\n?? deep/\n?? hard\n?? soft\n" {
				t.Errorf("got %s", got)
			}
			name := "" // the image has settings of root
			if user == "0:0" {
				name = "Image\n"
			}
			if got := output(t, box, "git config user.name || true"); got != name {
				t.Errorf("git's user is %q", got)
			}
		})
	}
	for dir, want := range map[string]string{
		"/none":       "the image has no directory /none",
		"/link":       "/link of the image is a symlink; name the directory /repo",
		"/etc/passwd": "/etc/passwd of the image is not a directory",
	} {
		_, err := e.Open(t.Context(), config(t, docker.Config{
			Image: image, WorkDir: dir, OwnWorkDir: true,
		}))
		var bad *docker.ConfigError
		if !errors.As(err, &bad) || bad.Field != "working directory" || bad.Reason != want {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// TestWritableRoot writes outside of the writable directories.
func TestWritableRoot(t *testing.T) {
	t.Parallel()
	e := connect(t)
	const script = "echo x 2>/dev/null >/etc/here && echo written || echo refused"
	for _, test := range []struct {
		config docker.Config
		want   string
	}{
		{docker.Config{User: "root"}, "refused\n"},
		{docker.Config{User: "root", WritableRoot: true}, "written\n"},
		{docker.Config{WritableRoot: true}, "refused\n"}, // an ordinary user may not
	} {
		box := open(t, e, test.config)
		if got := output(t, box, "{ "+script+"; } 2>/dev/null"); got != test.want {
			t.Errorf("%+v: %s", test.config, got)
		}
		var by string
		for _, g := range box.Info().Guarantees {
			by += g.By
		}
		if strings.Contains(by, "root file system is writable") != test.config.WritableRoot {
			t.Errorf("%+v: %s", test.config, by)
		}
	}
}
