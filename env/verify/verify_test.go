package verify

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
)

// boot is the boot ID of the kernel in these tests.
const boot = "kernel"

// expected has all guarantees.
func expected() Expect {
	return Expect{
		Unprivileged: true, Filters: 2, User: &User{UID: 10001, GID: 10001},
		ReadOnly: []string{"/", "/usr"}, Writable: []string{"/work"}, Executable: []string{"/work"},
		Unwritable: []string{"/outside"}, Unreadable: []string{"/secret"}, Kept: []string{"/kept"},
		OwnNamespaces: true, NoNetwork: true,
		Host: Host{
			Files: []string{"/canary"}, Listening: []string{"127.0.0.1:9"},
			Sockets: []string{"/socket"}, Process: 9, Name: "us",
		},
		PIDs: 512, Memory: 1 << 30, CPUs: 2,
		Vars: []string{"PATH", "LC_*"}, NoCredentials: true, Helper: "/helper/sandboxd",
		Mounts: []Mount{
			{Point: "/"},
			{Point: "/work/", Root: regexp.MustCompile(`/volumes/x$`)},
			{Point: "/helper"},
			{Point: "/memory", Memory: true},
			{Point: "/link/x"},
			{Point: "/either", Memory: true},
			{Point: "/either", Root: regexp.MustCompile(`^/wanted$`)},
		},
	}
}

// good is the report of a probe in a sandbox with all guarantees.
func good() document {
	zero := "0000000000000000"
	d := document{
		Status: map[string]string{
			"CapInh": zero, "CapPrm": zero, "CapEff": zero, "CapBnd": zero, "CapAmb": zero,
			"NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "2",
			"Uid": "10001 10001 10001 10001", "Gid": "10001 10001 10001 10001", "Groups": "10001",
		},
		Tries:      map[string]string{},
		Limits:     map[string]string{"pids": "512", "memory": "1073741824", "swap": "0", "cpus": "2"},
		Namespaces: map[string]uint64{},
		Links:      map[string]string{"/link/x": "/target/x"},
		Boot:       boot,
		Mounts: []mountPoint{
			{Point: "/", Type: "overlay", Root: "/", ReadOnly: true},
			{Point: "/proc", Type: "proc", Root: "/"},
			{Point: "/helper", Type: "ext4", Root: "/helper", ReadOnly: true},
			{Point: "/target/x", Type: "ext4", Root: "/x"},
			{Point: "/work", Type: "ext4", Root: "/volumes/x"},
			{Point: "/memory", Type: "tmpfs", Root: "/", Options: "rw,nosuid,nodev,relatime"},
			{Point: "/either", Type: "ext4", Root: "/wanted"},
			{Point: "/proc/sys", Type: "proc", Root: "/sys", ReadOnly: true},
			{Point: "/sys", Type: "sysfs", Root: "/", ReadOnly: true},
			{Point: "/sys/fs/cgroup", Type: "tmpfs", Root: "/", Options: "rw"},
			{Point: "/sys/fs/cgroup/pids", Type: "cgroup", Root: "/", ReadOnly: true},
		},
		Routes: []string{}, Vars: []string{"PATH", "LC_ALL", "PWD", "SANDBOXAGENT_EXEC_1"},
	}
	for i, kind := range []string{"pid", "ipc", "uts", "cgroup", "mnt", "net"} {
		d.Namespaces[kind] = initialNamespaces + uint64(i) //nolint:gosec // an index
	}
	for _, key := range expected().request().Tries {
		d.Tries[key] = map[string]string{
			"call": "EPERM", "helper": "EACCES", "find": "ENOENT", "socket": "ENOENT", "dial": "ENOENT",
			"process": "ENOENT", "connect": "ENETUNREACH", "resolve": outcomeNoAnswer,
			"write": "EROFS", "change": "EROFS", "read": "EACCES",
		}[strings.Fields(key)[0]]
	}
	d.Tries["connect tcp 127.0.0.1:9"] = "ECONNREFUSED"
	d.Tries["write /work"], d.Tries["execute /work"] = outcomeOK, outcomeOK
	return d
}

func names(findings []Finding) []string {
	all := []string{}
	for _, f := range findings {
		all = append(all, f.Name)
	}
	return all
}

func TestAllProved(t *testing.T) {
	r := expected().judge(good(), boot)
	if !r.OK() {
		t.Errorf("%+v", r.Broken())
	}
	if len(r.Findings) != 28 {
		t.Errorf("%d findings", len(r.Findings))
	}
}

// TestSilence removes each part of a report: a guarantee counts as broken each time.
func TestSilence(t *testing.T) {
	optional := map[string]bool{ // their absence proves nothing bad
		"Seccomp_filters": true, // of old kernels
		"Groups":          true, // of a user without groups
	}
	whole := good()
	for field := range reflect.TypeFor[document]().Fields() {
		value := reflect.ValueOf(whole).FieldByIndex(field.Index)
		if value.Kind() != reflect.Map {
			continue
		}
		for _, key := range value.MapKeys() {
			if optional[key.String()] {
				continue
			}
			d := good()
			reflect.ValueOf(d).FieldByIndex(field.Index).SetMapIndex(key, reflect.Value{})
			if r := expected().judge(d, boot); r.OK() {
				t.Errorf("without %s %q the report is OK", field.Name, key)
			}
		}
	}
	for name, take := range map[string]func(*document){
		"mounts": func(d *document) { d.Mounts = nil },
		"routes": func(d *document) { d.Routes = nil },
		"vars":   func(d *document) { d.Vars = nil },
	} {
		d := good()
		take(&d)
		if r := expected().judge(d, boot); r.OK() {
			t.Errorf("without %s the report is OK", name)
		}
	}
	silent := expected().judge(document{}, boot)
	if len(silent.Broken()) != len(silent.Findings) {
		t.Errorf("an empty report proves some of %v", names(silent.Findings))
	}
}

func TestBroken(t *testing.T) {
	mounted := func(point, kind string) func(*document) {
		return func(d *document) {
			d.Mounts = append(d.Mounts, mountPoint{Point: point, Type: kind})
		}
	}
	tried := func(key, outcome string) func(*document) {
		return func(d *document) { d.Tries[key] = outcome }
	}
	limit := func(key, value string) func(*document) {
		return func(d *document) { d.Limits[key] = value }
	}
	socket := "socket " + sockets()[0]
	for name, test := range map[string]struct {
		change func(*document)
		want   string // the name of the broken finding, if any
	}{
		"a higher limit":     {limit("pids", "513"), "processes-limit"},
		"a negative limit":   {limit("pids", "-1"), "processes-limit"},
		"a lower limit":      {limit("pids", "100"), ""},
		"no limit":           {limit("cpus", "max"), "processors-limit"},
		"a fraction more":    {limit("cpus", "2.5"), "processors-limit"},
		"an infinite number": {limit("cpus", "NaN"), "processors-limit"},
		"an effective user": {
			func(d *document) { d.Status["Uid"] = "10001 0 10001 10001" }, "user",
		},
		"a covering mount":       {mounted("/", "ext4"), "root-file-system"},
		"an unknown mount":       {mounted("/host", "ext4"), "mounts"},
		"a disk below /proc":     {mounted("/proc/x", "ext4"), "mounts"},
		"a directory below /dev": {mounted("/dev/x", "tmpfs"), "mounts"},
		"a device of rootless":   {mounted("/dev/null", "devtmpfs"), ""},
		"a device in memory":     {mounted("/dev/null", "tmpfs"), ""},
		"a directory of the host": {
			func(d *document) { mountAt(d, "/work").Root = "/home/somebody" }, "mounts",
		},
		"a disk for memory": {func(d *document) { mountAt(d, "/memory").Type = "ext4" }, "mounts"},
		"devices in memory": {
			func(d *document) { mountAt(d, "/memory").Options = "rw,nosuid" }, "mounts",
		},
		"rights in memory": {
			func(d *document) { mountAt(d, "/memory").Options = "rw,nodev" }, "mounts",
		},
		"neither of two":      {func(d *document) { mountAt(d, "/either").Root = "/other" }, "mounts"},
		"a symlink elsewhere": {func(d *document) { d.Links["/link/x"] = "/elsewhere" }, "mounts"},
		"an allowed call":     {tried("call setns", "EBADF"), "system-call-filter"},
		"a hidden file":       {tried("find /canary", "EACCES"), "host-files"},
		"a hidden socket":     {tried(socket, "EACCES"), ""},
		"a socket":            {tried(socket, outcomeOK), "sockets"},
		"a file, no socket":   {tried(socket, outcomeNone), ""},
		"another machine":     {func(d *document) { d.Boot = "other" }, ""},
		"a file on another machine": {
			func(d *document) { d.Boot, d.Tries["find /canary"] = "other", outcomeOK }, "host-files",
		},
		"no mount of a helper": {
			func(d *document) { d.Mounts = slices.Delete(d.Mounts, 2, 3) }, "helper-volume",
		},
		"a slow refusal":     {tried("connect tcp 169.254.169.254:80", "timeout"), "metadata-service"},
		"an answer":          {tried("resolve example.com.", outcomeOK), "name-service"},
		"an old kernel":      {func(d *document) { delete(d.Status, "Seccomp_filters") }, ""},
		"a malformed number": {func(d *document) { d.Status["CapEff"] = "" }, "capabilities"},
		"a malformed count": {
			func(d *document) { d.Status["Seccomp_filters"] = "many" }, "system-call-filter",
		},
		"the machine's pids": {
			func(d *document) { d.Namespaces["pid"] = initialNamespaces - 4 }, "namespaces",
		},
		"this process":        {tried("process 9", "us"), "host-processes"},
		"another of the ID":   {tried("process 9", "sh"), ""},
		"a file made outside": {tried("write /outside", outcomeOK), "outside-files"},
		"a kept file":         {tried("change /kept", outcomeOK), "kept-files"},
		"a secret":            {tried("read /secret", outcomeOK), "secrets"},
		"an empty secret":     {tried("read /secret", outcomeNone), ""},
		"a host socket":       {tried("dial /socket", outcomeOK), "host-sockets"},
		"a busy host socket":  {tried("dial /socket", "EAGAIN"), "host-sockets"},
		"a file of the host":  {tried("find /canary", outcomeOK), "host-files"},
		"a variable":          {func(d *document) { d.Vars = append(d.Vars, "LD_PRELOAD") }, "variables"},
		"a longer variable":   {func(d *document) { d.Vars = append(d.Vars, "PATHS") }, "variables"},
	} {
		t.Run(name, func(t *testing.T) {
			d := good()
			test.change(&d)
			want := strings.Fields(test.want)
			if diff := cmp.Diff(want, names(expected().judge(d, boot).Broken())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// mountAt is a mount of d.
func mountAt(d *document, point string) *mountPoint {
	return &d.Mounts[slices.IndexFunc(d.Mounts, func(m mountPoint) bool { return m.Point == point })]
}

// TestElsewhere judges an environment on another machine: that it does not find things of this one
// proves nothing.
func TestElsewhere(t *testing.T) {
	for _, f := range expected().judge(good(), "").Findings {
		unknown := strings.Contains(f.Found, "not known")
		if unknown != strings.HasPrefix(f.Name, "host-") || unknown && f.Wanted != "informative" {
			t.Errorf("%+v", f)
		}
	}
}

// TestWithoutRights judges an environment without a mount namespace.
func TestWithoutRights(t *testing.T) {
	x := Expect{
		NoNewRights: true, NoSockets: true, Filters: 1,
		Host: Host{Listening: []string{"127.0.0.1:9"}},
	}
	kept := func() document {
		d := good()
		d.Routes, d.Mounts = nil, nil
		d.Status["CapBnd"] = "ffff"
		d.Tries["call personality"], d.Tries["connect tcp 127.0.0.1:9"] = outcomeOK, "EACCES"
		for _, f := range socketFamilies() {
			d.Tries["family "+f] = "EACCES"
		}
		return d
	}
	if r := x.judge(kept(), boot); !r.OK() {
		t.Errorf("%+v", r.Broken())
	}
	for name, test := range map[string]struct {
		change func(*document)
		want   string
	}{
		"a capability":   {func(d *document) { d.Status["CapEff"] = "1" }, "capabilities"},
		"ambient rights": {func(d *document) { d.Status["CapAmb"] = "1" }, "capabilities"},
		"no filter":      {func(d *document) { d.Status["Seccomp_filters"] = "0" }, "system-call-filter"},
		"another call":   {func(d *document) { d.Tries["call setns"] = "EBADF" }, "system-call-filter"},
		"the helper":     {func(d *document) { d.Tries["helper mem"] = outcomeOK }, "helper-memory"},
		"a socket":       {func(d *document) { d.Tries["family udp4"] = outcomeOK }, "network-sockets"},
		"an odd refusal": {func(d *document) { d.Tries["family raw"] = "EINVAL" }, "network-sockets"},
		"silence":        {func(d *document) { delete(d.Tries, "family packet") }, "network-sockets"},
		"a listener": {
			func(d *document) { d.Tries["connect tcp 127.0.0.1:9"] = "ECONNREFUSED" },
			"host-loopback",
		},
	} {
		d := kept()
		test.change(&d)
		if diff := cmp.Diff([]string{test.want}, names(x.judge(d, boot).Broken())); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestEnforcers checks the enforcer of each finding.
func TestEnforcers(t *testing.T) {
	for _, test := range []struct{ by, sockets, want, wantSockets string }{
		{"", "", "the kernel", "the kernel"},
		{"mounts", "a filter", "mounts", "a filter"},
	} {
		x := expected()
		x.By, x.SocketsBy = test.by, test.sockets
		got := map[string]string{}
		for _, f := range x.judge(good(), boot).Findings {
			got[f.Name] = f.By
		}
		for _, name := range []string{"secrets", "kept-files", "outside-files"} {
			if got[name] != test.want {
				t.Errorf("%s is by %q, want %q", name, got[name], test.want)
			}
		}
		if got["host-sockets"] != test.wantSockets {
			t.Errorf("host-sockets is by %q, want %q", got["host-sockets"], test.wantSockets)
		}
	}
}

// TestNoGuarantees: a report without findings is not OK.
func TestNoGuarantees(t *testing.T) {
	r := Expect{}.judge(good(), boot)
	if len(r.Findings) != 0 || r.OK() {
		t.Errorf("%v, %v", names(r.Findings), r.OK())
	}
}

// TestPlain has text that would act on a terminal or fill it.
func TestPlain(t *testing.T) {
	d := good()
	d.Limits["pids"] = "\x1b[2Jevil\n" + strings.Repeat("x", 10_000)
	d.Vars = append(d.Vars, "\x1b]0;title\a\u202e")
	for _, f := range expected().judge(d, boot).Broken() {
		control := func(r rune) bool { return r < ' ' || r == 0x7f || r == 0x202e }
		if strings.ContainsFunc(f.Found, control) || len(f.Found) > 4*maxText {
			t.Errorf("%s: %q", f.Name, f.Found)
		}
	}
}

// runner writes a text to stdout.
type runner struct {
	text    string
	result  env.Result
	err     error
	request string
	argv    []string
}

// Exec implements env.Runner.
func (r *runner) Exec(_ context.Context, cmd env.Command) (env.Result, error) {
	r.argv = cmd.Argv
	request, err := io.ReadAll(cmd.Stdin)
	if err != nil {
		return env.Result{}, err
	}
	r.request = string(request)
	out := cmd.Stdout
	if r.result.ExitCode != 0 {
		out = cmd.Stderr
	}
	if _, err := io.WriteString(out, r.text); err != nil {
		return r.result, err
	}
	return r.result, r.err
}

func TestRun(t *testing.T) {
	local := good()
	local.Boot = bootID()
	whole, err := json.Marshal(local)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		runner runner
		want   string
		is     error
	}{
		"good":      {runner: runner{text: string(whole)}},
		"no answer": {runner: runner{}, want: "EOF", is: env.ErrProtocol},
		"no JSON":   {runner: runner{text: "hello"}, want: "invalid character", is: env.ErrProtocol},
		"too much": {
			runner: runner{text: strings.Repeat(" ", maxDocument+1)}, want: "too much",
			is: env.ErrProtocol,
		},
		"exit code": {
			runner: runner{text: "no\x1b[m such thing\n", result: env.Result{ExitCode: 2}},
			want:   "exit code 2: no\uFFFD[m such thing",
		},
		"timed out": {
			runner: runner{text: string(whole), result: env.Result{TimedOut: true}},
			want:   "no answer within",
		},
		"gone": {runner: runner{err: env.ErrGone}, want: "gone", is: env.ErrGone},
		"cut by end": {
			runner: runner{text: string(whole[:len(whole)/2])}, want: "EOF",
			is: env.ErrProtocol,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Run(t.Context(), &test.runner, []string{"/helper/sandboxd", "x"}, expected())
			if test.want == "" {
				if err != nil || !r.OK() {
					t.Errorf("%v, %v", r.Broken(), err)
				}
			} else if err == nil || !strings.Contains(err.Error(), test.want) ||
				test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if diff := cmp.Diff([]string{"/helper/sandboxd", "x", "probe"}, test.runner.argv); diff != "" {
				t.Error(diff)
			}
			var q request
			if err := decode([]byte(test.runner.request), maxRequest, &q); err != nil || len(q.Tries) == 0 {
				t.Errorf("%+v, %v", q, err)
			}
		})
	}
}

// FuzzJudge: the text of a finding is printable and of bounded length.
func FuzzJudge(f *testing.F) {
	whole, err := json.Marshal(good())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := decodeDocument(data)
		if err != nil {
			return
		}
		for _, finding := range expected().judge(d, boot).Findings {
			if finding.Name == "" || finding.Found == "" || finding.By == "" || finding.Wanted == "" ||
				len(finding.Found) > 4*maxText+4 {
				t.Errorf("%+v", finding)
			}
		}
	})
}
