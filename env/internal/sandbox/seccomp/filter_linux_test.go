package seccomp

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNumbers compares the table with that of golang.org/x/sys, which is made from the kernel's
// headers.
func TestNumbers(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}",
		"golang.org/x/sys").
		Output()
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^\s*SYS_(\w+)\s*=\s*(\d+)`)
	for column, goarch := range map[int]string{
		columnAMD64: "amd64", column386: "386",
		columnARM64: "arm64", columnARM: "arm",
	} {
		source, err := os.ReadFile(
			filepath.Join(strings.TrimSpace(string(out)), "unix", "zsysnum_linux_"+goarch+".go"),
		)
		if err != nil {
			t.Fatal(err)
		}
		known := make(map[string]int)
		for _, m := range line.FindAllStringSubmatch(string(source), -1) {
			if known[strings.ToLower(m[1])], err = strconv.Atoi(m[2]); err != nil {
				t.Fatal(err)
			}
		}
		if len(known) < 300 {
			t.Fatalf("%d calls of %s are known", len(known), goarch)
		}
		for _, n := range numbers {
			name, row := n.call, n.of
			want, ok := known[name]
			if !ok {
				want = none
			}
			if int(row[column]) != want {
				t.Errorf("%s on %s is %d, want %d", name, goarch, row[column], want)
			}
		}
	}
}

// run returns what a filter answers to a call, by the rules of the kernel's virtual machine.
func run(t testing.TB, program []unix.SockFilter, arch, number uint32, args [6]uint64) uint32 {
	t.Helper()
	var data [16]uint32
	data[0], data[1] = number, arch
	for i, a := range args {
		data[4+2*i], data[5+2*i] = uint32(a), uint32(a>>32)
	}
	var acc uint32
	for i := 0; i < len(program); i++ {
		in := program[i]
		jumpTo := func(holds bool) {
			if holds {
				i += int(in.Jt)
			} else {
				i += int(in.Jf)
			}
		}
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = data[in.K/4]
		case unix.BPF_JMP | unix.BPF_JA:
			i += int(in.K)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jumpTo(acc == in.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jumpTo(acc >= in.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jumpTo(acc&in.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("instruction %d is %+v", i, in)
		}
	}
	t.Fatal("the filter has no end")
	return 0
}

func testRules() []Rule {
	return []Rule{
		{Call: "mount"},
		{Call: "clone3", Errno: unix.ENOSYS},
		{Call: "prlimit64", When: []Condition{NotZero(0), NotNil(2)}},
		{
			Call:  "clone",
			When:  []Condition{AnyBit(0, unix.CLONE_NEWUSER|unix.CLONE_NEWNS)},
			Errno: unix.EACCES,
		},
		{Call: "rt_sigqueueinfo", When: []Condition{OneOf(1, 4, 8, 11)}},
		{Call: "rt_sigqueueinfo", When: []Condition{OneOf(0, 1), OneOf(1, 9)}, Errno: unix.ESRCH},
		{Call: "fcntl64", When: []Condition{OneOf(1, 10)}},
		{Call: "socketcall"},
	}
}

func TestFilter(t *testing.T) {
	const big = 1 << 32
	for _, tt := range []struct {
		call string
		args [6]uint64
		want syscall.Errno // 0: it is let through
	}{
		{"mount", [6]uint64{}, unix.EPERM},
		{"clone3", [6]uint64{}, unix.ENOSYS},
		{"prlimit64", [6]uint64{1, 0, 1}, unix.EPERM},
		{"prlimit64", [6]uint64{1, 0, big}, unix.EPERM},
		{"prlimit64", [6]uint64{1, 0, 0}, 0},
		{"prlimit64", [6]uint64{0, 0, 1}, 0},
		{"prlimit64", [6]uint64{big, 0, 1}, 0}, // the kernel sees 0, too
		{"clone", [6]uint64{unix.CLONE_NEWUSER}, unix.EACCES},
		{"clone", [6]uint64{unix.CLONE_NEWNS | unix.CLONE_VM}, unix.EACCES},
		{"clone", [6]uint64{unix.CLONE_VM}, 0},
		{"rt_sigqueueinfo", [6]uint64{5, 4}, unix.EPERM},
		{"rt_sigqueueinfo", [6]uint64{5, 8}, unix.EPERM},
		{"rt_sigqueueinfo", [6]uint64{5, 11}, unix.EPERM},
		{"rt_sigqueueinfo", [6]uint64{5, 9}, 0},
		{"rt_sigqueueinfo", [6]uint64{1, 9}, unix.ESRCH},
		{"fcntl64", [6]uint64{0, 10}, unix.EPERM},
		{"socketcall", [6]uint64{}, unix.EPERM},
		{"setns", [6]uint64{}, 0},
	} {
		for _, kind := range abis(runtime.GOARCH) {
			program, err := Program(testRules())
			if err != nil {
				t.Fatal(err)
			}
			row, ok := numbersOf(tt.call)
			number := row[kind.column]
			if !ok || number == none {
				continue
			}
			want := uint32(unix.SECCOMP_RET_ALLOW)
			if tt.want != 0 {
				want = unix.SECCOMP_RET_ERRNO | uint32(tt.want)
			}
			if got := run(t, program, kind.arch, uint32(number), tt.args); got != want {
				t.Errorf("%s %v for kind %#x: %#x, want %#x", tt.call, tt.args, kind.arch, got, want)
			}
		}
	}
}

func TestFilterRefusesUnknownKinds(t *testing.T) {
	program, err := Program(nil)
	if err != nil {
		t.Fatal(err)
	}
	const missing = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	if got := run(t, program, unix.AUDIT_ARCH_PPC, 1, [6]uint64{}); got != missing {
		t.Errorf("a program of another kind gets %#x", got)
	}
	if got := run(t, program, unix.AUDIT_ARCH_X86_64, 0x40000000+1,
		[6]uint64{}); runtime.GOARCH == "amd64" &&
		got != missing {
		t.Errorf("a call of the x32 kind gets %#x", got)
	}
}

func TestProgramErrors(t *testing.T) {
	if _, err := Program([]Rule{{Call: "mont"}}); err == nil ||
		!strings.Contains(err.Error(), `"mont"`) {
		t.Errorf("a rule about no call: %v", err)
	}
	many := make([]Rule, 2000)
	for i := range many {
		many[i] = Rule{Call: "mount"}
	}
	if _, err := Program(many); err == nil || !strings.Contains(err.Error(), "instructions") {
		t.Errorf("too many rules: %v", err)
	}
	if err := Install(nil); err == nil {
		t.Error("an empty filter is installed")
	}
}

const childVar = "SANDBOXAGENT_TEST_SECCOMP"

// TestMain is also a program that installs a filter and reports its refused calls.
func TestMain(m *testing.M) {
	mode := os.Getenv(childVar)
	if mode == "" {
		os.Exit(m.Run())
	}
	answers, err := refused(mode)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(answers)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// refused installs a filter and returns the answers to some calls, of this thread and of another.
func refused(mode string) (map[string]string, error) {
	other, done := make(chan func()), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		for f := range other {
			f()
			done <- struct{}{}
		}
	}()
	runtime.LockOSThread()
	elsewhere := func(f func()) { other <- f; <-done }
	elsewhere(func() {}) // it has a thread now
	program, err := Program([]Rule{{Call: "unshare", Errno: unix.EXDEV}})
	if err != nil {
		return nil, err
	}
	for _, set := range []func(func()){func(f func()) { f() }, elsewhere} {
		set(func() {
			if e := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); e != nil {
				err = e
			}
		})
	}
	if mode == "all" {
		err = errors.Join(err, Install(program))
	} else {
		err = errors.Join(err, InstallThread(program))
	}
	answers := make(map[string]string)
	answers["this"] = fmt.Sprint(unix.Unshare(0))
	elsewhere(func() { answers["other"] = fmt.Sprint(unix.Unshare(0)) })
	answers["allowed"] = fmt.Sprint(unix.Access("/", unix.F_OK))
	return answers, err
}

func TestInstall(t *testing.T) {
	refusal := unix.EXDEV.Error()
	for mode, want := range map[string]map[string]string{
		"all":    {"this": refusal, "other": refusal, "allowed": "<nil>"},
		"thread": {"this": refusal, "other": "<nil>", "allowed": "<nil>"},
	} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childVar+"="+mode)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		var got map[string]string
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("%s: %v in %q", mode, err, out)
		}
		for who, answer := range want {
			if got[who] != answer {
				t.Errorf("%s, %s: %s, want %s", mode, who, got[who], answer)
			}
		}
	}
}
