package integration_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/integration/daemons"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// jobKind is a kind of container that a job of a CI system may run in.
type jobKind struct {
	name  string
	users []int
	// filter is Docker's option for the filter of system calls; empty for the daemon's default.
	filter string
	// bare is without capabilities and new rights, uncovered is without mounts over parts of /proc.
	bare, uncovered bool
	// bwrap is with this machine's bubblewrap.
	bwrap bool
	// home is the variable HOME; empty for Docker's default.
	home string
	// noBubblewrap and noLandlock are the reasons why these cannot work in it on any machine.
	noBubblewrap, noLandlock string
}

func jobKinds() []jobKind {
	const missing, useless = "the program bwrap is not installed", "bwrap: "
	const home, none = "/home/dev", "seccomp=unconfined"
	both := []int{0, 1000}
	return []jobKind{
		{name: "plain", users: both, noBubblewrap: missing},
		{name: "plain, bwrap", users: []int{1000}, bwrap: true, home: home, noBubblewrap: useless},
		{
			name: "Landlock is refused", users: []int{0}, filter: oldFilter(syscall.EPERM),
			noBubblewrap: missing, noLandlock: syscall.EPERM.Error(),
		},
		{
			name: "Landlock is unknown, bwrap", users: []int{1000}, filter: oldFilter(syscall.ENOSYS),
			bwrap: true, home: home, noBubblewrap: useless, noLandlock: syscall.ENOSYS.Error(),
		},
		{name: "no filter", users: []int{0}, filter: none, bare: true, home: home, noBubblewrap: missing},
		{
			name: "no filter, bwrap", users: both, filter: none, bare: true, bwrap: true,
			noBubblewrap: useless,
		},
		{
			name: "no filter, nothing is covered, bwrap", users: both, filter: none, uncovered: true,
			bwrap: true, home: home,
		},
	}
}

// oldFilter is the filter of an old Docker: it refuses namespaces, mounts, and Landlock, which is
// newer. Whether the error is EPERM or ENOSYS depends on the version of runc.
func oldFilter(landlock syscall.Errno) string {
	const newUser = `"args": [{"index": 0, "value": 268435456, "valueTwo": 268435456, "op": ` +
		`"SCMP_CMP_MASKED_EQ"}]`
	return fmt.Sprintf(`seccomp={"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
		{"names": ["landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"],
			"action": "SCMP_ACT_ERRNO", "errnoRet": %d},
		{"names": ["unshare", "clone"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1, %s},
		{"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38},
		{"names": ["mount"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1}]}`, landlock, newUser)
}

// TestSandboxInContainer runs the program in unprivileged containers, as the job of a CI system
// does. The test finds the strongest sandbox without the program, which must use and report it.
func TestSandboxInContainer(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	d.need(t, daemons.Busybox)
	look := buildLook(t)
	for _, kind := range jobKinds() {
		for _, user := range kind.users {
			t.Run(fmt.Sprintf("%s/user %d", kind.name, user), func(t *testing.T) {
				t.Parallel()
				j := startJob(t, d, kind, user, user, look)
				j.probe(t, kind)
				t.Logf("sandbox %q; %q", j.by, j.reasons)
				if j.by == "" {
					j.refuses(t)
					j.runsUnsandboxed(t)
					return
				}
				j.confines(t)
				j.enforces(t)
			})
		}
	}
	t.Run("root in a checkout of another user", func(t *testing.T) {
		t.Parallel()
		j := startJob(t, d, jobKinds()[0], 0, 1001, look)
		j.reasons = []string{project + " belongs to user 1001"}
		j.refuses(t)
		j.runsUnsandboxed(t)
	})
}

// buildLook builds a program that prints the version of Landlock, or the error of the kernel.
func buildLook(t *testing.T) string {
	t.Helper()
	const source = `package main

import "syscall"

func main() {
	// landlock_create_ruleset, for its version
	if version, _, err := syscall.Syscall(444, 0, 0, 1); err != 0 {
		print(err.Error())
	} else {
		print(version)
	}
}
`
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"look.go": source})
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "look", "look.go")
	build.Dir = dir
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return filepath.Join(dir, "look")
}

// Names in the container of a job.
const (
	project = "/builds/project"
	outside = "/builds/outside"
	script  = "/builds/script.yaml"
)

// job is a container in which the program runs.
type job struct {
	d  *dockerHost
	id string
	// by is the strongest sandbox that works; empty if none does. Reasons explain why no stronger one
	// works.
	by      string
	reasons []string
}

// startJob starts a container, with a working directory that belongs to owner, until the test ends.
func startJob(t *testing.T, d *dockerHost, kind jobKind, user, owner int, look string) *job {
	t.Helper()
	mark := newMark()
	config := &container.Config{
		Image: daemons.Busybox, User: strconv.Itoa(user), WorkingDir: project,
		Labels: map[string]string{markLabel: mark},
		// As PID 1 of a job often does, it does not reap orphans. It ends even if it is not removed.
		Cmd: []string{"sleep", "600"}, Env: []string{"SANDBOXAGENT_STATE_DIR=/builds/state"},
	}
	host := &container.HostConfig{
		AutoRemove: true, NetworkMode: "none",
		Binds: []string{command(t) + ":/usr/local/bin/sandboxagent:ro", look + ":/usr/local/bin/look:ro"},
	}
	if kind.home != "" {
		config.Env = append(config.Env, "HOME="+kind.home)
	}
	if kind.filter != "" {
		host.SecurityOpt = append(host.SecurityOpt, kind.filter)
	}
	if kind.bare {
		host.CapDrop, host.SecurityOpt = []string{"ALL"}, append(host.SecurityOpt, "no-new-privileges")
	}
	if kind.uncovered {
		host.MaskedPaths, host.ReadonlyPaths = []string{}, []string{}
	}
	if kind.bwrap {
		host.Binds = append(host.Binds, bubblewrapFiles(t)...)
	}
	made, err := d.api.ContainerCreate(t.Context(), config, host, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	j := &job{d: d, id: made.ID}
	t.Cleanup(func() { j.remove(t, mark) })
	err = d.api.CopyToContainer(t.Context(), j.id, "/", jobFiles(t, kind.home, owner),
		container.CopyToContainerOptions{})
	if err == nil {
		err = d.api.ContainerStart(t.Context(), j.id, container.StartOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
	j.exec(t, "httpd", "-p", "127.0.0.1:8080", "-h", "/builds")
	return j
}

// remove removes the container, and waits until it is gone.
func (j *job) remove(t *testing.T, mark string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	gone, failed := j.d.api.ContainerWait(ctx, j.id, container.WaitConditionRemoved)
	// it may end by itself
	_ = j.d.api.ContainerRemove(ctx, j.id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	select {
	case <-gone:
	case <-failed: //nolint:errcheck // it is gone already
	}
	j.d.checkNone(t, mark)
}

// bubblewrapFiles are mounts of this machine's bubblewrap and the libraries that it needs.
func bubblewrapFiles(t *testing.T) []string {
	t.Helper()
	program, err := exec.LookPath("bwrap")
	if err != nil {
		daemons.Missing(t, "sandbox", "bubblewrap is not installed on this machine")
	}
	binds := []string{program + ":/usr/bin/bwrap:ro"}
	// a static program has none
	libraries, _ := exec.CommandContext(t.Context(), "ldd", program).Output()
	for _, name := range regexp.MustCompile(`/\S+`).FindAllString(string(libraries), -1) {
		binds = append(binds, name+":"+name+":ro")
	}
	return binds
}

// jobFiles are the files of the container besides programs: a working directory, files outside of
// it, and a secret.
func jobFiles(t *testing.T, home string, owner int) *bytes.Buffer {
	t.Helper()
	var all bytes.Buffer
	w := tar.NewWriter(&all)
	add := func(name, content string) {
		h := &tar.Header{
			Name: strings.TrimPrefix(name, "/"), Typeflag: tar.TypeReg, Mode: 0o644,
			Uid: owner, Gid: owner, Size: int64(len(content)),
		}
		if strings.HasSuffix(name, "/") {
			h.Typeflag, h.Mode = tar.TypeDir, 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	add("/builds/", "")
	add(project+"/", "")
	add("/builds/page", "reached\n")
	add(script, "turns:\n  - calls: [{tool: shell, args: {command: \"echo ran >by-model\"}}]\n  - "+
		"text: done\n")
	if home != "" {
		add(home+"/", "")
	}
	add(home+"/.ssh/", "")
	add(home+"/.ssh/id", "secret\n")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &all
}

// exec runs a command in the container, in the working directory, to its end.
func (j *job) exec(t *testing.T, argv ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Minute, fmt.Errorf("%q hangs", argv))
	defer cancel()
	made, err := j.d.api.ContainerExecCreate(ctx, j.id, container.ExecOptions{
		Cmd: argv, AttachStdout: true, AttachStderr: true, WorkingDir: project,
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := j.d.api.ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer context.AfterFunc(ctx, out.Close)()
	defer out.Close()
	var stdout, stderr bytes.Buffer
	if _, err := stdcopy.StdCopy(&stdout, &stderr, out.Reader); err != nil || ctx.Err() != nil {
		t.Fatal(err, context.Cause(ctx), stdout.String(), stderr.String())
	}
	for {
		is, err := j.d.api.ContainerExecInspect(ctx, made.ID)
		if err != nil {
			t.Fatal(err, context.Cause(ctx))
		}
		if !is.Running {
			return ran{is.ExitCode, stdout.String(), stderr.String()}
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// program runs the program in the container.
func (j *job) program(t *testing.T, args ...string) ran {
	t.Helper()
	return j.exec(t, slices.Concat([]string{"sandboxagent"}, args)...)
}

// has lists which of some files are in the container.
func (j *job) has(t *testing.T, names ...string) string {
	t.Helper()
	return j.exec(t, slices.Concat([]string{"ls", "-d"}, names)...).stdout
}

// probe finds the strongest sandbox that works in the container.
func (j *job) probe(t *testing.T, kind jobKind) {
	t.Helper()
	if kind.bwrap {
		got := j.exec(t, "bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts",
			"--unshare-cgroup-try", "--unshare-net",
			"--new-session", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc",
			"true")
		switch {
		case got.code == 0 && kind.noBubblewrap == "":
			j.by = "bubblewrap"
			return
		case got.code == 0 || !strings.HasPrefix(got.stderr, "bwrap: "):
			t.Fatalf("bubblewrap by itself: %+v", got)
		}
		why, _, _ := strings.Cut(got.stderr, "\n")
		j.reasons = []string{"bubblewrap: ", strings.TrimRight(why, ".")}
	} else {
		j.reasons = []string{"bubblewrap: " + kind.noBubblewrap}
	}
	got := j.exec(t, "look")
	if version, err := strconv.Atoi(got.stderr); err == nil && version >= 3 {
		j.by = "Landlock"
	} else {
		j.reasons = append(j.reasons, "Landlock: ", strings.Replace(got.stderr, syscall.ENOSYS.Error(),
			"a filter of system calls hides it", 1))
	}
	switch {
	case kind.noLandlock != "" && got.stderr != kind.noLandlock:
		t.Fatalf("the filter does not refuse Landlock: %+v", got)
	case j.by == "" && kind.filter == "seccomp=unconfined":
		daemons.Missing(t, "sandbox", "the kernel has no Landlock that serves: "+got.stderr)
	}
}

// all is a script with all that a sandbox prevents; it exits with 3.
func all(file string) string {
	return fmt.Sprintf(`echo ran >%s && cat %s
(echo x >%s) && echo wrote
cat "$HOME/.ssh/id"
wget -q -O- http://127.0.0.1:8080/page
exit 3`, file, file, outside)
}

// unconfined is its output without a sandbox.
const unconfined = "ran\nwrote\nsecret\nreached\n"

// refuses checks that nothing runs where a sandbox is required, and that messages name the reasons.
func (j *job) refuses(t *testing.T) {
	before := j.changes(t)
	for _, test := range []struct {
		code int
		args string
	}{
		{125, "exec --sandbox=require -- touch file"},
		{125, "exec --sandbox=auto --network=none -- touch file"},
		{125, "exec --sandbox=auto --enforce=confined-writes -- touch file"},
		{6, `tool --sandbox=require write_file --args {"file_path":"file","content":"x"}`},
		{6, "env verify --sandbox=require"},
		{6, "run --sandbox=require --yes --output=stream-json --model=script:" + script + " task"},
	} {
		got := j.program(t, strings.Fields(test.args)...)
		if got.code != test.code || !strings.HasPrefix(got.stderr, "sandboxagent: local: no sandbox ") ||
			strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%s: %+v", test.args, got)
		}
		wantContains(t, test.args, got.stderr, j.reasons...)
		if strings.HasPrefix(test.args, "run ") {
			_, res := records(t, got.stdout)
			if res.Status != "environment_error" || res.ExitCode != test.code {
				t.Errorf("the record is %+v", res)
			}
			wantContains(t, "the record's error", res.Error, j.reasons...)
		} else if got.stdout != "" {
			t.Errorf("%s prints %s", test.args, got.stdout)
		}
	}
	if after := j.changes(t); !slices.Equal(before, after) {
		t.Errorf("the files were %q, and are %q", before, after)
	}
}

// changes lists the differences from the image, less the helper that bubblewrap was tried with, and
// used directories.
func (j *job) changes(t *testing.T) (names []string) {
	t.Helper()
	found, err := j.d.api.ContainerDiff(t.Context(), j.id)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range found {
		if !strings.Contains(c.Path, "/.cache") && c.Path != "/tmp" {
			names = append(names, c.Path)
		}
	}
	slices.Sort(names)
	return names
}

// runsUnsandboxed checks that the program runs commands without a sandbox where it may, and reports
// that in a note and in events.
func (j *job) runsUnsandboxed(t *testing.T) {
	const note = "sandboxagent: note: commands run without a sandbox: "
	got := j.program(t, "exec", "--sandbox=auto", "--", "sh", "-c", all("by-auto"))
	if got.code != 3 || got.stdout != unconfined || strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("%+v", got)
	}
	wantContains(t, "standard error", got.stderr, append([]string{note}, j.reasons...)...)

	model := []string{
		"run", "--sandbox=auto", "--output=stream-json", "--model=script:" + script, "task",
	}
	if got := j.program(t, model...); got.code != 2 || !strings.Contains(got.stderr,
		"with --yes") || j.has(t, "by-model") != "" {
		t.Errorf("it ran without consent: %+v", got)
	}
	got = j.program(t, append(model, "--yes")...)
	if got.code != 0 || j.has(t, "by-model") == "" {
		t.Errorf("%+v", got)
	}
	wantContains(t, "standard error", got.stderr, "without a sandbox")
	if strings.Contains(got.stderr, note) {
		t.Errorf("the note comes once more: %s", got.stderr)
	}
	j.checkGuarantees(t, got.stdout, map[env.GuaranteeName]env.Strength{
		env.Isolation: env.Absent, env.ConfinedWrites: env.Absent, env.HiddenSecrets: env.Absent,
		env.NoNetwork: env.Absent,
	})
	if got := j.program(t, "env", "verify"); got.code != 1 {
		t.Errorf("env verify: %+v", got)
	}
}

// checkGuarantees checks the guarantees of a run, in its first and last events.
func (j *job) checkGuarantees(
	t *testing.T, stdout string, want map[env.GuaranteeName]env.Strength,
) {
	t.Helper()
	events, res := records(t, stdout)
	reported := [][]env.Guarantee{res.Guarantees}
	for _, e := range events {
		if start, ok := e.Data.(event.SessionStart); ok {
			reported = append(reported, start.Guarantees)
		}
	}
	if len(reported) != 2 {
		t.Fatalf("%d sessions started", len(reported)-1)
	}
	for _, guarantees := range reported {
		for guarantee, strength := range want {
			if got := (env.Info{Guarantees: guarantees}).Strength(guarantee); got != strength {
				t.Errorf("%s is %s, not %s", guarantee, got, strength)
			}
		}
		for _, g := range guarantees {
			if g.Name == env.Isolation {
				wantContains(t, "the reason", g.By, append([]string{j.by}, j.reasons...)...)
			}
		}
	}
}

// confines checks that a sandbox confines commands, and that a note reports a weaker one.
func (j *job) confines(t *testing.T) {
	off := j.program(t, "exec", "--sandbox=off", "--", "sh", "-c", all("by-off"))
	if removed := j.exec(t, "rm", outside); off.code != 3 || off.stdout != unconfined ||
		removed.code != 0 {
		t.Fatalf("without a sandbox: %+v, %+v", off, removed)
	}
	for _, mode := range []string{"require", "auto"} {
		got := j.program(t, "exec", "--sandbox="+mode, "--", "sh", "-c", all("by-"+mode))
		if got.code != 3 || got.stdout != "ran\n" {
			t.Errorf("%s: %+v", mode, got)
		}
		const note = "sandboxagent: note: the sandbox is not the strongest: Landlock, "
		if j.by == "Landlock" && mode == "require" { // later it is known
			wantContains(t, "standard error", got.stderr, append([]string{note}, j.reasons...)...)
		} else if strings.Contains(got.stderr, "note: the sandbox is ") {
			t.Errorf("%s: %s", mode, got.stderr)
		}
	}
	if got := j.has(t, "by-require", "by-auto", outside); got != "by-auto\nby-require\n" {
		t.Errorf("the files are %q", got)
	}
}

// enforces checks the guarantees, and --enforce for each.
func (j *job) enforces(t *testing.T) {
	want := map[env.GuaranteeName]env.Strength{
		env.Isolation: env.Enforced, env.HiddenProcesses: env.Enforced,
		env.ConfinedWrites: env.Enforced, env.HiddenSecrets: env.Enforced, env.NoNetwork: env.Enforced,
		env.NoNewRights: env.Enforced,
	}
	if j.by == "Landlock" {
		want[env.Isolation], want[env.HiddenProcesses] = env.BestEffort, env.Absent
	}
	got := j.program(t, "run", "--output=stream-json", "--model=script:"+script, "task")
	if got.code != 0 {
		t.Errorf("a model in a sandbox: %+v", got)
	}
	j.checkGuarantees(t, got.stdout, want)
	strong := []string{"exec", "--network=none"}
	for guarantee, strength := range want {
		if strength == env.Enforced {
			strong = append(strong, "--enforce="+string(guarantee))
			continue
		}
		got := j.program(t, "exec", "--enforce="+string(guarantee), "--", "touch", "weak")
		if got.code != 125 || got.stdout != "" {
			t.Errorf("%s: %+v", guarantee, got)
		}
		wantContains(t, string(guarantee), got.stderr, append([]string{
			"no sandbox of this machine enforces " + string(guarantee),
		}, j.reasons...)...)
	}
	if got := j.program(t, append(strong, "--", "touch", "strong")...); got.code != 0 {
		t.Errorf("%q: %+v", strong, got)
	}
	if got := j.has(t, "by-model", "strong", "weak"); got != "by-model\nstrong\n" {
		t.Errorf("the files are %q", got)
	}
	if got := j.program(t, "env", "verify", "--sandbox=require"); got.code != 0 ||
		!strings.Contains(got.stdout, "\n0 of ") {
		t.Errorf("env verify: %+v", got)
	}
}
