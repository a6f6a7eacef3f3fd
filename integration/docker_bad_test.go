package integration_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// badInput is an execution of the program with a mistake.
type badInput struct {
	name, flag string
	vars       []string
	// code is that of run; exec always ends with 125.
	code int
	// message lists parts of the message, which is a single line: the mistake and a remedy.
	message []string
}

// usage is a mistake in a flag.
func usage(name, flag string, message ...string) badInput {
	return badInput{name: name, flag: flag, code: 2, message: message}
}

// failure is a flag that names something that does not exist.
func failure(name, flag string, message ...string) badInput {
	return badInput{name: name, flag: flag, code: 6, message: message}
}

// address is a mistake in the variables that name a daemon.
func address(code int, name string, vars []string, message ...string) badInput {
	return badInput{name: name, vars: vars, code: code, message: message}
}

func badInputs(missing, link string) []badInput {
	const closed, own = "DOCKER_HOST=tcp://127.0.0.1:1", "mount a directory of your own"
	local := "--env=local "
	return []badInput{
		address(6, "no daemon", []string{"DOCKER_HOST=unix://" + missing}, missing,
			"no daemon listens on it; start one, or let DOCKER_HOST name another"),
		address(6, "unreachable host", []string{closed}, "tcp://127.0.0.1:1", "connection refused",
			"is it running, and is DOCKER_HOST right?"),
		address(2, "malformed address", []string{"DOCKER_HOST=docker.example.com"},
			`DOCKER_HOST: "docker.example.com" is not an address such as unix:///`),
		address(2, "unknown context", []string{"DOCKER_HOST=", "DOCKER_CONTEXT=none-of-this-name"},
			`the docker context "none-of-this-name"`, `"docker context ls" lists`),
		address(2, "no certificates",
			[]string{closed, "DOCKER_TLS_VERIFY=1", "DOCKER_CERT_PATH=" + missing}, missing),

		usage("image", "--image=Upper/Case:x y", "--image: ", "bad reference", "Upper/Case"),
		failure("missing image", "--image=sandboxagent-test/none:1 --pull=never",
			"sandboxagent-test/none:1: missing", "--pull"),
		failure("unreachable registry", "--image=127.0.0.1:1/a/b:1", "127.0.0.1:1/a/b:1", "unreachable"),
		usage("pull", "--pull=sometimes", `--pull: "sometimes" is not one of missing, always, never`),
		usage("platform", "--platform=windows/amd64", "--platform: ", "the environment is Linux"),
		failure("unknown runtime", "--runtime=none-of-this-name", "none-of-this-name"),

		usage("memory", "--memory=much", `--memory: "much" is not a size such as 512MiB or 4GiB`),
		usage("too little memory", "--memory=1MiB", "--memory: ", "at least"),
		usage("too few processes", "--pids=2", "--pids: ", "at least"),
		usage("CPUs", "--cpus=-1", "--cpus: ", "such as 0.5 or 2"),
		usage("too many CPUs", "--cpus=9999", "--cpus: 9999 is more than the "),
		usage("network", "--network=bridge", `--network: "bridge" is not one of none, full`),
		usage("user", "--user=bob", `--user: "bob" is neither root nor a number such as 10001`),
		usage("TTL", "--ttl=0s", "--ttl is 0; leave it out for the default"),
		usage("reserved label", "--label=sandboxagent.session=x", "--label: ", "taken"),
		usage("variables of the host", "--inherit-vars=all", "--inherit-vars has no effect here",
			"--pass-var"),
		usage("working directory", "--workdir="+missing,
			"--workdir: the directory "+missing+" does not exist"),
		usage("relative directory of the image", "--no-upload --workdir=x",
			`--workdir: "x" is not absolute; with --no-upload it is a directory of the image`),
		usage("missing directory of the image", "--no-upload --workdir=/none",
			"--workdir: the image has no directory /none"),
		usage("apply without an upload", "--no-upload --apply", "--no-upload excludes --apply",
			"--patch"),
		usage("ignored files without an upload", "--no-upload --upload-ignored=x",
			"--no-upload excludes --upload-ignored"),
		usage("upload", "--upload="+missing, "--upload: ", missing),
		usage("download", "--download=:x", "--download", "SOURCE:TARGET"),

		usage("mount", "--mount=/srv", `--mount "/srv" is not of the form SOURCE:TARGET`),
		usage("mount of the root", "--mount=/:/host", "--mount: ", own),
		usage("mount of the system", "--mount=/etc:/host:ro", "--mount: ", own),
		usage("mount by a detour", "--mount=/srv/../proc/1:/host", "--mount: ", own),
		usage("mount of a symlink", "--mount="+link+":/host:ro", "--mount: ", "/etc", own),
		usage("mount of the daemon", "--mount=/var/run/docker.sock:/x", "--mount: ", "socket"),
		failure("mount of nothing", "--mount="+missing+":/x", missing),
		usage("mount over the helper", "--mount=/srv:/.sandboxagent/x", "--mount: ", "the helper's"),
		usage("mount over the workspace", "--mount=/srv:/workspace", "--mount: ", "/workspace"),
		usage("mount to a relative name", "--mount=/srv:x", "--mount: ", "absolute"),
		usage("tmpfs over /proc", "--tmpfs=/proc/x", "--tmpfs: ", "/proc"),

		usage("memory of local", local+"--memory=1GiB",
			"--memory has no effect with --env=local; it is for --env=docker"),
		usage("network of local", local+"--sandbox=off --network=none",
			"--network has no effect with --sandbox=off"),
		usage("image of local", local+"--image=x",
			"--image has no effect with --env=local; it is for --env=docker"),
		usage("apply on local", local+"--apply", "--apply has no effect with --env=local"),
	}
}

// TestDockerBadInput makes mistakes of all kinds. The program reports each in one line with a
// remedy, and leaves nothing behind.
func TestDockerBadInput(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	missing := filepath.Join(t.TempDir(), "missing")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/etc", link); err != nil {
		t.Skipf("no symlinks: %v", err)
	}
	script := filepath.Join(t.TempDir(), "model.yaml")
	writeTree(t, filepath.Dir(script), map[string]string{"model.yaml": "turns: [{text: ok}]"})
	for _, tt := range badInputs(missing, link) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := d.try(t, tt, "run", "--model=script:"+script, "--output=stream-json", "a task")
			if _, res := records(t, got.stdout); got.code != tt.code || res.ExitCode != tt.code {
				t.Errorf("run exits with %d, and %d in %+v, want %d\n%s", got.code, res.ExitCode, res,
					tt.code, got.stderr)
			}
			tt.check(t, got)
			got = d.try(t, tt, "exec", "--", "true")
			if got.code != 125 || got.stdout != "" {
				t.Errorf("exec exits with %d %s\n%s", got.code, got.stdout, got.stderr)
			}
			tt.check(t, got)
		})
	}
	t.Run("missing download", func(t *testing.T) {
		t.Parallel()
		bad := failure("", "--image="+daemons.Busybox+" --download=none:"+
			filepath.Join(t.TempDir(), "x"), "--download", "none: no such file")
		if got := d.try(t, bad, "exec", "--", "true"); got.code != 125 {
			t.Errorf("exec exits with %d", got.code)
		} else {
			bad.check(t, got)
		}
		got := d.try(t, bad, "run", "--model=script:"+script, "a task")
		if got.code != 6 || !strings.Contains(got.stderr, bad.message[0]) {
			t.Errorf("run exits with %d\n%s", got.code, got.stderr)
		}
	})
}

// try executes the program with the mistake.
func (d *dockerHost) try(t *testing.T, bad badInput, args ...string) ran {
	t.Helper()
	mark := newMark()
	cmd := d.command(t, t.TempDir(), mark, args...)
	var flags []string
	for flag := range strings.SplitSeq(" "+bad.flag, " --") { // a value may hold a blank
		if flag != "" && flag != " " {
			flags = append(flags, "--"+flag)
		}
	}
	if strings.HasPrefix(bad.flag, "--env=local") {
		cmd.Args = slices.DeleteFunc(cmd.Args, func(arg string) bool {
			return arg == "--env=docker" || strings.HasPrefix(arg, "--label="+markLabel)
		})
	}
	cmd.Args = slices.Insert(cmd.Args, 2, flags...)
	cmd.Env = append(cmd.Env, bad.vars...)
	d.removeLeft(t, mark)
	got := finish(t, cmd)
	d.checkNone(t, mark)
	return got
}

// check checks the message.
func (bad badInput) check(t *testing.T, got ran) {
	t.Helper()
	lines := slices.DeleteFunc(slices.Collect(strings.Lines(got.stderr)),
		func(line string) bool { return strings.Contains(line, ": note: ") })
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "sandboxagent: ") {
		t.Errorf("the message is %q", lines)
	}
	wantContains(t, "the message", got.stderr, bad.message...)
}
