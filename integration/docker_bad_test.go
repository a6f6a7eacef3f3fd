package integration_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// badInput is an execution of the program that cannot go well.
type badInput struct {
	flags []string
	vars  []string
	// code is that of run; exec always ends with 125.
	code int
	// says is what the message, a single line, must say: what is wrong, and what would help.
	says []string
}

// TestDockerBadInput makes mistakes of all kinds. Each is told in one line that helps, before
// anything is left anywhere.
func TestDockerBadInput(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	missing := filepath.Join(t.TempDir(), "missing")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/etc", link); err != nil {
		t.Skipf("there are no links here: %v", err)
	}
	nowhere := []string{"DOCKER_HOST="}
	tests := map[string]badInput{
		"no daemon": {
			vars: []string{"DOCKER_HOST=unix://" + missing}, code: 6,
			says: []string{missing, "no daemon listens there; start one, or let DOCKER_HOST name another"},
		},
		"unreachable host": {
			vars: []string{"DOCKER_HOST=tcp://127.0.0.1:1"}, code: 6,
			says: []string{
				"tcp://127.0.0.1:1", "connection refused",
				"is it running, and is DOCKER_HOST right?",
			},
		},
		"no address": {
			vars: []string{"DOCKER_HOST=docker.example.com"}, code: 2,
			says: []string{`DOCKER_HOST: "docker.example.com" is none such as unix:///`},
		},
		"no context": {
			vars: append(nowhere, "DOCKER_CONTEXT=none-of-this-name"), code: 2,
			says: []string{`the docker context "none-of-this-name"`, `"docker context ls" lists`},
		},
		"no certificates": {vars: []string{
			"DOCKER_HOST=tcp://127.0.0.1:1", "DOCKER_TLS_VERIFY=1",
			"DOCKER_CERT_PATH=" + missing,
		}, code: 2, says: []string{missing}},

		"image that cannot be": {
			flags: []string{"--image=Upper/Case:x y"}, code: 2,
			says: []string{"--image: ", "bad reference", "Upper/Case"},
		},
		"image that is not there": {
			flags: []string{"--image=sandboxagent-test/none:1", "--pull=never"},
			code:  6, says: []string{"sandboxagent-test/none:1: missing", "--pull"},
		},
		"registry that is not": {
			flags: []string{"--image=127.0.0.1:1/a/b:1"}, code: 6,
			says: []string{"127.0.0.1:1/a/b:1", "unreachable"},
		},
		"pull of no kind": {
			flags: []string{"--pull=sometimes"}, code: 2,
			says: []string{`--pull: "sometimes" is none of missing, always, never`},
		},
		"platform of Windows": {
			flags: []string{"--platform=windows/amd64"}, code: 2,
			says: []string{"--platform: ", "the environment is Linux"},
		},
		"runtime that is not there": {
			flags: []string{"--runtime=none-of-this-name"}, code: 6,
			says: []string{"none-of-this-name"},
		},

		"memory of no size": {
			flags: []string{"--memory=much"}, code: 2,
			says: []string{`--memory: "much" is not a size such as 512MiB or 4GiB`},
		},
		"too little memory": {
			flags: []string{"--memory=1MiB"}, code: 2,
			says: []string{"--memory: ", "at least"},
		},
		"too few processes": {flags: []string{"--pids=2"}, code: 2, says: []string{
			"--pids: ",
			"at least",
		}},
		"processors": {flags: []string{"--cpus=-1"}, code: 2, says: []string{
			"--cpus: ",
			"0.5 or 2, say",
		}},
		"network of no kind": {
			flags: []string{"--network=bridge"}, code: 2,
			says: []string{`--network: "bridge" is none of none, full`},
		},
		"user by name": {
			flags: []string{"--user=bob"}, code: 2,
			says: []string{`--user: "bob" is neither root nor a number such as 10001`},
		},
		"no time to live": {
			flags: []string{"--ttl=0s"}, code: 2,
			says: []string{"--ttl is 0; leave it out for the default"},
		},
		"label that is taken": {
			flags: []string{"--label=sandboxagent.session=x"}, code: 2,
			says: []string{"--label: ", "taken"},
		},
		"variables of the host": {
			flags: []string{"--inherit-vars=all"}, code: 2,
			says: []string{"--inherit-vars has no effect here", "--pass-var"},
		},
		"working folder": {
			flags: []string{"--workdir=" + missing}, code: 2,
			says: []string{"--workdir: the directory " + missing + " does not exist"},
		},
		"upload of nothing": {
			flags: []string{"--upload=" + missing}, code: 2,
			says: []string{"--upload: ", missing},
		},
		"download without a name": {
			flags: []string{"--download=:x"}, code: 2,
			says: []string{"--download", "SOURCE:TARGET"},
		},

		"mount of no form": {
			flags: []string{"--mount=/srv"}, code: 2,
			says: []string{`--mount "/srv" is not of the form SOURCE:TARGET`},
		},
		"mount of the root": {
			flags: []string{"--mount=/:/host"}, code: 2,
			says: []string{"--mount: ", "mount a directory of your own"},
		},
		"mount of the system": {
			flags: []string{"--mount=/etc:/host:ro"}, code: 2,
			says: []string{"--mount: ", "mount a directory of your own"},
		},
		"mount by a way round": {
			flags: []string{"--mount=/srv/../proc/1:/host"}, code: 2,
			says: []string{"--mount: ", "mount a directory of your own"},
		},
		"mount of a link": {
			flags: []string{"--mount=" + link + ":/host:ro"}, code: 2,
			says: []string{"--mount: ", "/etc", "mount a directory of your own"},
		},
		"mount of the daemon": {
			flags: []string{"--mount=/var/run/docker.sock:/x"}, code: 2,
			says: []string{"--mount: ", "socket"},
		},
		"mount of nothing": {
			flags: []string{"--mount=" + missing + ":/x"}, code: 6,
			says: []string{missing},
		},
		"mount over the helper": {
			flags: []string{"--mount=/srv:/.sandboxagent/x"}, code: 2,
			says: []string{"--mount: ", "the helper's"},
		},
		"mount over the workspace": {
			flags: []string{"--mount=/srv:/workspace"}, code: 2,
			says: []string{"--mount: ", "/workspace"},
		},
		"mount to no absolute name": {
			flags: []string{"--mount=/srv:x"}, code: 2,
			says: []string{"--mount: ", "absolute"},
		},
		"tmpfs over /proc": {
			flags: []string{"--tmpfs=/proc/x"}, code: 2,
			says: []string{"--tmpfs: ", "/proc"},
		},

		"memory of this machine": {
			flags: []string{"--env=local", "--memory=1GiB"}, code: 2,
			says: []string{"--memory has no effect with --env=local; it is for --env=docker"},
		},
		"network of this machine": {
			flags: []string{"--env=local", "--sandbox=off", "--network=none"},
			code:  2, says: []string{"--network has no effect with --sandbox=off"},
		},
		"image of this machine": {
			flags: []string{"--env=local", "--image=x"}, code: 2,
			says: []string{"--image has no effect with --env=local; it is for --env=docker"},
		},
		"apply on this machine": {
			flags: []string{"--env=local", "--apply"}, code: 2,
			says: []string{"--apply has no effect with --env=local"},
		},
	}
	script := filepath.Join(t.TempDir(), "model.yaml")
	writeTree(t, filepath.Dir(script), map[string]string{"model.yaml": "turns: [{text: ok}]"})
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := d.try(t, tt, "run", "--model=script:"+script, "--output=stream-json", "a task")
			if _, res := records(t, got.stdout); got.code != tt.code || res.ExitCode != tt.code {
				t.Errorf("run ends with %d, and %d in the record %+v, want %d\n%s", got.code, res.ExitCode, res,
					tt.code, got.stderr)
			}
			tt.check(t, got)
			got = d.try(t, tt, "exec", "--", "true")
			if got.code != 125 || got.stdout != "" {
				t.Errorf("exec ends with %d %s\n%s", got.code, got.stdout, got.stderr)
			}
			tt.check(t, got)
		})
	}
	t.Run("download of nothing", func(t *testing.T) {
		t.Parallel()
		bad := badInput{flags: []string{"--download=none:" + filepath.Join(t.TempDir(), "x"), "--image=" +
			daemons.Busybox}, says: []string{"--download", "none: no such file"}}
		if got := d.try(t, bad, "exec", "--", "true"); got.code != 125 {
			t.Errorf("exec ends with %d", got.code)
		} else {
			bad.check(t, got)
		}
		got := d.try(t, bad, "run", "--model=script:"+script, "a task")
		if got.code != 6 || !strings.Contains(got.stderr, bad.says[0]) {
			t.Errorf("run ends with %d\n%s", got.code, got.stderr)
		}
	})
}

// try executes the program with the mistake.
func (d *dockerHost) try(t *testing.T, bad badInput, args ...string) ran {
	t.Helper()
	mark := newMark()
	cmd := d.command(t, t.TempDir(), mark, args...)
	// Flags stand in front, so that what ends them stays behind.
	cmd.Args = append(cmd.Args[:2:2], append(bad.flags, cmd.Args[2:]...)...)
	for i, a := range cmd.Args {
		if len(bad.flags) > 0 && bad.flags[0] == "--env=local" && (a == "--env=docker" ||
			strings.HasPrefix(a, "--label="+markLabel)) {
			cmd.Args[i] = "--env=local"
		}
	}
	cmd.Env = append(cmd.Env, bad.vars...)
	d.removeLeft(t, mark)
	got := finish(t, cmd)
	d.nothing(t, mark)
	return got
}

// check checks the message.
func (bad badInput) check(t *testing.T, got ran) {
	t.Helper()
	var said []string
	for line := range strings.Lines(got.stderr) {
		if !strings.Contains(line, ": note: ") {
			said = append(said, line)
		}
	}
	if len(said) != 1 || !strings.HasPrefix(said[0], "sandboxagent: ") {
		t.Errorf("the message is %q", said)
	}
	wantContains(t, "the message", got.stderr, bad.says...)
}
