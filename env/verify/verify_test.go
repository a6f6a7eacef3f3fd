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
	"github.com/sandboxagent/sandboxagent/env/internal/probe"
)

// boot is what the kernel of these tests calls itself.
const boot = "kernel"

// expected promises everything.
func expected() Expect {
	return Expect{
		Unprivileged: true, Filters: 2, User: &User{UID: 10001, GID: 10001}, ReadOnly: []string{"/", "/usr"}, Writable: []string{"/work"},
		Executable: []string{"/work"}, OwnNamespaces: true, Init: "sandboxd", NoNetwork: true,
		Unwritable: []string{"/outside"}, Unreadable: []string{"/secret"}, Kept: []string{"/kept"}, Apart: map[string]uint64{"user": 5},
		Host: Host{Files: []string{"/canary"}, Listening: []string{"127.0.0.1:9"}, Sockets: []string{"/socket"}, Process: 9, Name: "us"}, PIDs: 512, Memory: 1 << 30, CPUs: 2, NoCoreFiles: true,
		Vars: []string{"PATH", "LC_*"}, NoCredentials: true, Helper: "/helper/sandboxd",
		Mounts: []Mount{
			{Point: "/"},
			{Point: "/work/", Root: regexp.MustCompile(`/volumes/x$`)},
			{Point: "/helper"},
			{Point: "/memory", Memory: true},
			{Point: "/link/x"},
			{Point: "/either", Memory: true},
			{Point: "/either", Root: regexp.MustCompile(`^/asked$`)},
		},
	}
}

// document is what a probe says where all of it is kept.
func document() probe.Document {
	zero := "0000000000000000"
	d := probe.Document{
		Version: probe.Version,
		Status: map[string]string{
			"CapInh": zero, "CapPrm": zero, "CapEff": zero, "CapBnd": zero, "CapAmb": zero, "NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "2",
			"Uid": "10001 10001 10001 10001", "Gid": "10001 10001 10001 10001", "Groups": "10001",
		},
		Tries:      map[string]string{probe.TrySetuid: "EPERM", probe.TryResolve: "no answer", probe.TryHelperFile: "EACCES", probe.TryIOUring: "ok"},
		Limits:     map[string]string{"pids": "512", "memory": "1073741824", "swap": "0", "cpus": "2", "core": "0"},
		Namespaces: map[string]uint64{},
		Links:      map[string]string{"/link/x": "/target/x"},
		Boot:       boot,
		Mounts: []probe.Mount{
			{Point: "/", Type: "overlay", Root: "/", ReadOnly: true},
			{Point: "/proc", Type: "proc", Root: "/"},
			{Point: "/helper", Type: "ext4", Root: "/helper", ReadOnly: true},
			{Point: "/target/x", Type: "ext4", Root: "/x"},
			{Point: "/work", Type: "ext4", Root: "/volumes/x"},
			{Point: "/memory", Type: "tmpfs", Root: "/", Options: "rw,nosuid,nodev,relatime"},
			{Point: "/either", Type: "ext4", Root: "/asked"},
			{Point: "/proc/sys", Type: "proc", Root: "/sys", ReadOnly: true},
			{Point: "/sys", Type: "sysfs", Root: "/", ReadOnly: true},
			{Point: "/sys/fs/cgroup", Type: "tmpfs", Root: "/", Options: "rw"},
			{Point: "/sys/fs/cgroup/pids", Type: "cgroup", Root: "/", ReadOnly: true},
		},
		Interfaces: []string{"lo"}, Routes: []string{}, Vars: []string{"PATH", "LC_ALL", "PWD", "SANDBOXAGENT_EXEC_1"},
		Processes: map[string]string{"1": "sandboxd", "7": "sh"}, Devices: map[string]string{"/dev/null": "c 1:3"},
		DeviceRules: []string{"c *:* m", "b *:* m", "c 1:3 rwm", "c 136:* rwm"}, Setuid: "/bin/su",
	}
	for i, kind := range []string{"pid", "ipc", "uts", "cgroup", "mnt", "net"} {
		d.Namespaces[kind] = initialNamespaces + uint64(i) //nolint:gosec // an index
	}
	for _, call := range []string{
		probe.TryMount, probe.TryMknod, probe.TryUnshare, probe.TryClone, probe.TryClone3, probe.TryPtrace, probe.TryKeyctl, probe.TryBPF, probe.TryPerf, probe.TrySyslog,
		probe.TryWrite("/"), probe.TryWrite("/usr"),
	} {
		d.Tries[call] = "EPERM"
	}
	for _, name := range append([]string{"/canary"}, tokens()...) {
		d.Tries[probe.TryFind(name)] = "ENOENT"
	}
	for _, name := range sockets() {
		d.Tries[probe.TrySocket(name)] = "ENOENT"
	}
	for _, call := range probe.Filtered() {
		d.Tries[probe.TryFiltered(call)] = "EPERM"
	}
	for _, name := range probe.Kernel() {
		d.Tries[probe.TryAccess(name)] = "ENOENT"
		if strings.HasPrefix(name, "/sys") || strings.HasPrefix(name, "/proc/sys/") {
			d.Tries[probe.TryAccess(name)] = "EROFS"
		}
	}
	for _, name := range probe.Secret() {
		d.Tries[probe.TryRead(name)] = probe.None
	}
	for _, name := range probe.Helpers() {
		d.Tries[probe.TryHelper(name)] = "EACCES"
	}
	for _, t := range probe.Outside() {
		d.Tries[probe.TryConnect(t.Network, t.Address)] = "ENETUNREACH"
	}
	d.Namespaces["user"] = 6
	d.Tries[probe.TryConnect("tcp", "127.0.0.1:9")] = "ECONNREFUSED"
	d.Tries[probe.TryWrite("/outside")], d.Tries[probe.TryRead("/secret")], d.Tries[probe.TryDial("/socket")] = "EACCES", "EACCES", "ENOENT"
	d.Tries[probe.TryChange("/kept")] = "EROFS"
	d.Tries[probe.TryWrite("/work")], d.Tries[probe.TryExecute("/work")] = probe.OK, probe.OK
	return d
}

func names(findings []Finding) []string {
	all := []string{}
	for _, f := range findings {
		all = append(all, f.Name)
	}
	return all
}

func TestAllKept(t *testing.T) {
	r := expected().judge(document(), boot)
	if !r.OK() {
		t.Errorf("%+v", r.Broken())
	}
	if len(r.Findings) != 47 {
		t.Errorf("%d findings", len(r.Findings))
	}
}

// TestSilence takes each thing that the probe says away, and sees that a promise is broken by that.
func TestSilence(t *testing.T) {
	optional := map[string]bool{ // their absence proves nothing bad
		"Seccomp_filters": true, // of old kernels
		"Groups":          true, // of somebody who is in none
		"user":            true,
	}
	good := document()
	for field := range reflect.TypeFor[probe.Document]().Fields() {
		value := reflect.ValueOf(good).FieldByIndex(field.Index)
		if value.Kind() != reflect.Map {
			continue
		}
		for _, key := range value.MapKeys() {
			if optional[key.String()] || field.Name == "Processes" && key.String() != "1" {
				continue
			}
			d := document()
			reflect.ValueOf(d).FieldByIndex(field.Index).SetMapIndex(key, reflect.Value{})
			if r := expected().judge(d, boot); r.OK() {
				t.Errorf("without %s %q all is well", field.Name, key)
			}
		}
	}
	for name, take := range map[string]func(*probe.Document){
		"mounts":     func(d *probe.Document) { d.Mounts = nil },
		"interfaces": func(d *probe.Document) { d.Interfaces = nil },
		"routes":     func(d *probe.Document) { d.Routes = nil },
		"vars":       func(d *probe.Document) { d.Vars = nil },
		"devices":    func(d *probe.Document) { d.Devices = nil },
	} {
		d := document()
		take(&d)
		if r := expected().judge(d, boot); r.OK() {
			t.Errorf("without %s all is well", name)
		}
	}
	silent := expected().judge(probe.Document{Version: probe.Version}, boot)
	if len(silent.Broken()) != len(silent.Findings) {
		t.Errorf("a probe that says nothing keeps %v", names(silent.Findings))
	}
}

func TestBroken(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*probe.Document)
		want   []string
	}{
		"a higher limit":      {func(d *probe.Document) { d.Limits["pids"] = "513" }, []string{"processes-limit"}},
		"a negative limit":    {func(d *probe.Document) { d.Limits["pids"] = "-1" }, []string{"processes-limit"}},
		"a lower limit":       {func(d *probe.Document) { d.Limits["pids"] = "100" }, []string{}},
		"no limit":            {func(d *probe.Document) { d.Limits["cpus"] = "max" }, []string{"processors-limit"}},
		"a fraction more":     {func(d *probe.Document) { d.Limits["cpus"] = "2.5" }, []string{"processors-limit"}},
		"an infinite number":  {func(d *probe.Document) { d.Limits["cpus"] = "NaN" }, []string{"processors-limit"}},
		"an effective user":   {func(d *probe.Document) { d.Status["Uid"] = "10001 0 10001 10001" }, []string{"user"}},
		"a covering mount":    {func(d *probe.Document) { d.Mounts = append(d.Mounts, probe.Mount{Point: "/", Type: "ext4"}) }, []string{"root-file-system"}},
		"an unknown mount":    {func(d *probe.Document) { d.Mounts = append(d.Mounts, probe.Mount{Point: "/host", Type: "ext4"}) }, []string{"mounts"}},
		"a disk below /proc":  {func(d *probe.Document) { d.Mounts = append(d.Mounts, probe.Mount{Point: "/proc/x", Type: "ext4"}) }, []string{"mounts"}},
		"a folder below /dev": {func(d *probe.Document) { d.Mounts = append(d.Mounts, probe.Mount{Point: "/dev/x", Type: "tmpfs"}) }, []string{"mounts"}},
		"a device of rootless": {func(d *probe.Document) {
			d.Mounts = append(d.Mounts, probe.Mount{Point: "/dev/null", Type: "devtmpfs"})
		}, []string{}},
		"a device in memory": {func(d *probe.Document) {
			d.Mounts = append(d.Mounts, probe.Mount{Point: "/dev/null", Type: "tmpfs"})
		}, []string{}},
		"a folder of the host":   {func(d *probe.Document) { mountAt(d, "/work").Root = "/home/somebody" }, []string{"mounts"}},
		"a disk in its place":    {func(d *probe.Document) { mountAt(d, "/memory").Type = "ext4" }, []string{"mounts"}},
		"devices in memory":      {func(d *probe.Document) { mountAt(d, "/memory").Options = "rw,nosuid" }, []string{"mounts"}},
		"rights in memory":       {func(d *probe.Document) { mountAt(d, "/memory").Options = "rw,nodev" }, []string{"mounts"}},
		"neither of two":         {func(d *probe.Document) { mountAt(d, "/either").Root = "/other" }, []string{"mounts"}},
		"a link elsewhere":       {func(d *probe.Document) { d.Links["/link/x"] = "/elsewhere" }, []string{"mounts"}},
		"settings for writing":   {func(d *probe.Document) { mountAt(d, "/proc/sys").ReadOnly = false }, []string{"kernel-settings"}},
		"/sys for writing":       {func(d *probe.Document) { mountAt(d, "/sys").ReadOnly = false }, []string{"kernel-settings"}},
		"groups for writing":     {func(d *probe.Document) { mountAt(d, "/sys/fs/cgroup/pids").ReadOnly = false }, []string{"kernel-settings"}},
		"a setting, not mounted": {func(d *probe.Document) { d.Tries[probe.TryAccess("/proc/irq")] = "EACCES" }, []string{"kernel-settings"}},
		"a call not refused":     {func(d *probe.Document) { d.Tries[probe.TryFiltered("setns")] = "EBADF" }, []string{"system-call-filter"}},
		"clone3":                 {func(d *probe.Document) { d.Tries[probe.TryClone3] = probe.OK }, []string{"user-namespaces"}},
		"a setuid program stays": {func(d *probe.Document) { d.Status["NoNewPrivs"] = "0" }, []string{"no-new-privileges", "setuid-programs"}},
		"a device by its name":   {func(d *probe.Document) { d.Devices["/dev/full"] = "c 1:5" }, []string{"devices"}},
		"a console":              {func(d *probe.Document) { d.Devices["/dev/console"] = "c 136:7" }, []string{}},
		"all devices allowed":    {func(d *probe.Document) { d.DeviceRules = []string{"a *:* rwm"} }, []string{"devices"}},
		"a disk allowed":         {func(d *probe.Document) { d.DeviceRules = append(d.DeviceRules, "b 8:0 r") }, []string{"devices"}},
		"no rules told":          {func(d *probe.Document) { d.DeviceRules = nil }, []string{}},
		"a hidden file":          {func(d *probe.Document) { d.Tries[probe.TryFind("/canary")] = "EACCES" }, []string{"host-files"}},
		"a hidden socket":        {func(d *probe.Document) { d.Tries[probe.TrySocket(sockets()[0])] = "EACCES" }, []string{}},
		"a socket":               {func(d *probe.Document) { d.Tries[probe.TrySocket(sockets()[0])] = probe.OK }, []string{"sockets"}},
		"a file, no socket":      {func(d *probe.Document) { d.Tries[probe.TrySocket(sockets()[0])] = probe.None }, []string{}},
		"another machine":        {func(d *probe.Document) { d.Boot = "other" }, []string{}},
		"a file from elsewhere": {func(d *probe.Document) {
			d.Boot, d.Tries[probe.TryFind("/canary")] = "other", probe.OK
		}, []string{"host-files"}},
		"no mount of a helper":  {func(d *probe.Document) { d.Mounts = slices.Delete(d.Mounts, 2, 3) }, []string{"helper-volume"}},
		"a slow refusal":        {func(d *probe.Document) { d.Tries[probe.TryConnect("tcp", "1.1.1.1:443")] = "timeout" }, []string{"connections"}},
		"an answer":             {func(d *probe.Document) { d.Tries[probe.TryResolve] = probe.OK }, []string{"name-service"}},
		"another error":         {func(d *probe.Document) { d.Tries[probe.TryMount] = "EINVAL" }, []string{"mount"}},
		"io_uring refused":      {func(d *probe.Document) { d.Tries[probe.TryIOUring] = "EPERM" }, []string{}},
		"no setuid program":     {func(d *probe.Document) { d.Tries[probe.TrySetuid] = probe.None }, []string{}},
		"no program, no nnp":    {func(d *probe.Document) { d.Tries[probe.TrySetuid], d.Status["NoNewPrivs"] = probe.None, "0" }, []string{"no-new-privileges", "setuid-programs"}},
		"an old kernel":         {func(d *probe.Document) { delete(d.Status, "Seccomp_filters") }, []string{}},
		"a strange filter":      {func(d *probe.Document) { d.Status["Seccomp_filters"] = "many" }, []string{"system-call-filter"}},
		"the machine's pids":    {func(d *probe.Document) { d.Namespaces["pid"] = initialNamespaces - 4 }, []string{"namespaces"}},
		"a shared namespace":    {func(d *probe.Document) { d.Namespaces["user"] = 5 }, []string{"other-namespaces"}},
		"us":                    {func(d *probe.Document) { d.Processes["9"] = "us" }, []string{"host-processes"}},
		"another of our number": {func(d *probe.Document) { d.Processes["9"] = "sh" }, []string{}},
		"a file made outside":   {func(d *probe.Document) { d.Tries[probe.TryWrite("/outside")] = probe.OK }, []string{"outside-files"}},
		"a kept file":           {func(d *probe.Document) { d.Tries[probe.TryChange("/kept")] = probe.OK }, []string{"kept-files"}},
		"a secret":              {func(d *probe.Document) { d.Tries[probe.TryRead("/secret")] = probe.OK }, []string{"secrets"}},
		"an empty secret":       {func(d *probe.Document) { d.Tries[probe.TryRead("/secret")] = probe.None }, []string{}},
		"our socket":            {func(d *probe.Document) { d.Tries[probe.TryDial("/socket")] = probe.OK }, []string{"host-sockets"}},
		"our socket, busy":      {func(d *probe.Document) { d.Tries[probe.TryDial("/socket")] = "EAGAIN" }, []string{"host-sockets"}},
		"a kernel thread":       {func(d *probe.Document) { d.Processes["2"] = "kthreadd" }, []string{"processes"}},
		"a file that is there":  {func(d *probe.Document) { d.Tries[probe.TryFind("/canary")] = probe.OK }, []string{"host-files"}},
		"a variable":            {func(d *probe.Document) { d.Vars = append(d.Vars, "LD_PRELOAD") }, []string{"variables"}},
		"a longer variable":     {func(d *probe.Document) { d.Vars = append(d.Vars, "PATHS") }, []string{"variables"}},
		"an interface":          {func(d *probe.Document) { d.Interfaces = []string{"lo", "eth0"} }, []string{"network-interfaces"}},
		"a number that is none": {func(d *probe.Document) { d.Status["CapEff"] = "" }, []string{"capabilities"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := document()
			test.change(&d)
			if diff := cmp.Diff(test.want, names(expected().judge(d, boot).Broken())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// mountAt is a mount of d.
func mountAt(d *probe.Document, point string) *probe.Mount {
	return &d.Mounts[slices.IndexFunc(d.Mounts, func(m probe.Mount) bool { return m.Point == point })]
}

// TestElsewhere only tells what an environment on another machine does not find of this one.
func TestElsewhere(t *testing.T) {
	for _, f := range expected().judge(document(), "").Findings {
		if told := strings.Contains(f.Found, "not known"); told != strings.HasPrefix(f.Name, "host-") || told && f.Wanted != "only told" && f.Name != "host-processes" {
			t.Errorf("%+v", f)
		}
	}
}

// TestWithoutRights judges what an environment keeps that shows the machine as it is.
func TestWithoutRights(t *testing.T) {
	x := Expect{NoNewRights: true, NoSockets: true, Filters: 1, Host: Host{Listening: []string{"127.0.0.1:9"}}}
	kept := func() probe.Document {
		d := document()
		d.Interfaces, d.Routes, d.Devices, d.Mounts = nil, nil, nil, nil
		d.Status["CapBnd"] = "ffff"
		d.Tries[probe.TryFiltered("personality")], d.Tries[probe.TryConnect("tcp", "127.0.0.1:9")] = probe.OK, "EACCES"
		for _, f := range probe.Families() {
			d.Tries[probe.TrySocketOf(f)] = "EACCES"
		}
		return d
	}
	if r := x.judge(kept(), boot); !r.OK() {
		t.Errorf("%+v", r.Broken())
	}
	for name, test := range map[string]struct {
		change func(*probe.Document)
		want   string
	}{
		"a capability":   {func(d *probe.Document) { d.Status["CapEff"] = "1" }, "capabilities"},
		"a way to some":  {func(d *probe.Document) { d.Status["CapAmb"] = "1" }, "capabilities"},
		"no filter":      {func(d *probe.Document) { d.Status["Seccomp_filters"] = "0" }, "system-call-filter"},
		"another call":   {func(d *probe.Document) { d.Tries[probe.TryFiltered("setns")] = "EBADF" }, "system-call-filter"},
		"the helper":     {func(d *probe.Document) { d.Tries[probe.TryHelper("mem")] = probe.OK }, "helper-memory"},
		"its traces":     {func(d *probe.Document) { d.Tries[probe.TryPtrace] = probe.OK }, "helper-trace"},
		"a socket":       {func(d *probe.Document) { d.Tries[probe.TrySocketOf("udp4")] = probe.OK }, "network-sockets"},
		"an odd refusal": {func(d *probe.Document) { d.Tries[probe.TrySocketOf("raw")] = "EINVAL" }, "network-sockets"},
		"silence":        {func(d *probe.Document) { delete(d.Tries, probe.TrySocketOf("packet")) }, "network-sockets"},
		"somebody":       {func(d *probe.Document) { d.Tries[probe.TryConnect("tcp", "127.0.0.1:9")] = "ECONNREFUSED" }, "host-loopback"},
	} {
		d := kept()
		test.change(&d)
		if diff := cmp.Diff([]string{test.want}, names(x.judge(d, boot).Broken())); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestEnforcers sees who is named for what a mechanism refuses.
func TestEnforcers(t *testing.T) {
	for _, test := range []struct{ by, sockets, want, wantSockets string }{
		{"", "", "the kernel", "the kernel"},
		{"mounts", "a filter", "mounts", "a filter"},
	} {
		x := expected()
		x.By, x.SocketsBy = test.by, test.sockets
		got := map[string]string{}
		for _, f := range x.judge(document(), boot).Findings {
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

// TestNothingPromised judges nothing where nothing is promised, and that is not good.
func TestNothingPromised(t *testing.T) {
	r := Expect{}.judge(document(), boot)
	if len(r.Findings) != 0 || r.OK() {
		t.Errorf("%v, %v", names(r.Findings), r.OK())
	}
}

// TestPlain sees that nothing of what a sandbox says acts on a terminal or fills it.
func TestPlain(t *testing.T) {
	d := document()
	d.Processes["1"] = "\x1b[2Jevil\n" + strings.Repeat("x", 10_000)
	d.Vars = append(d.Vars, "\x1b]0;title\a\u202e")
	for _, f := range expected().judge(d, boot).Broken() {
		if strings.ContainsFunc(f.Found, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0x202e }) || len(f.Found) > 4*maxText {
			t.Errorf("%s: %q", f.Name, f.Found)
		}
	}
}

// runner answers with a text.
type runner struct {
	say    string
	result env.Result
	err    error
	asked  string
	argv   []string
}

// Exec implements env.Runner.
func (r *runner) Exec(_ context.Context, cmd env.Command) (env.Result, error) {
	r.argv = cmd.Argv
	asked, err := io.ReadAll(cmd.Stdin)
	if err != nil {
		return env.Result{}, err
	}
	r.asked = string(asked)
	out := cmd.Stdout
	if r.result.ExitCode != 0 {
		out = cmd.Stderr
	}
	if _, err := io.WriteString(out, r.say); err != nil {
		return r.result, err
	}
	return r.result, r.err
}

func TestRun(t *testing.T) {
	here := document()
	here.Boot = probe.Boot()
	good, err := json.Marshal(here)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		runner runner
		want   string
		is     error
	}{
		"good":       {runner: runner{say: string(good)}},
		"no answer":  {runner: runner{}, want: "EOF", is: env.ErrProtocol},
		"no JSON":    {runner: runner{say: "hello"}, want: "invalid character", is: env.ErrProtocol},
		"too much":   {runner: runner{say: strings.Repeat(" ", probe.MaxDocument+1)}, want: "too much", is: env.ErrProtocol},
		"exit code":  {runner: runner{say: "no\x1b[m such thing\n", result: env.Result{ExitCode: 2}}, want: "exit code 2: no\uFFFD[m such thing"},
		"timed out":  {runner: runner{say: string(good), result: env.Result{TimedOut: true}}, want: "no answer within"},
		"gone":       {runner: runner{err: env.ErrGone}, want: "gone", is: env.ErrGone},
		"cut by end": {runner: runner{say: string(good[:len(good)/2])}, want: "EOF", is: env.ErrProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Run(t.Context(), &test.runner, []string{"/helper/sandboxd", "x"}, expected())
			if test.want == "" {
				if err != nil || !r.OK() {
					t.Errorf("%v, %v", r.Broken(), err)
				}
			} else if err == nil || !strings.Contains(err.Error(), test.want) || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if diff := cmp.Diff([]string{"/helper/sandboxd", "x", "probe"}, test.runner.argv); diff != "" {
				t.Error(diff)
			}
			if _, err := probe.DecodeRequest(strings.NewReader(test.runner.asked)); err != nil {
				t.Error(err)
			}
		})
	}
}

// FuzzJudge sees that what a sandbox says never comes out as more than text of a bounded length.
func FuzzJudge(f *testing.F) {
	good, err := json.Marshal(document())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := probe.Decode(data)
		if err != nil {
			return
		}
		for _, finding := range expected().judge(d, boot).Findings {
			if finding.Name == "" || finding.Found == "" || finding.By == "" || finding.Wanted == "" || len(finding.Found) > 4*maxText+4 {
				t.Errorf("%+v", finding)
			}
		}
	})
}
