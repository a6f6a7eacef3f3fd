// Package verify checks the guarantees of an environment from inside: a program in it, the probe,
// tries to read, write, connect and so on, and [Run] compares the outcomes with an [Expect].
//
// The probe is the helper's subcommand "probe", which calls [Probe]. Each [Finding] is one
// guarantee: the state found, the state expected, and its enforcer. A guarantee that the probe does
// not report counts as broken.
//
// # Limits of the proof
//
// The probe runs in the sandbox like any command, so its report is only as true as the sandbox:
// verify a fresh environment. A sandbox that an attacker controls can lie. Defects of the kernel
// and timing channels between sandboxes are out of scope. A container within a container looks the
// same whether or not the outer one is safe.
package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/sandboxagent/sandboxagent/env"
)

// timeout bounds a run of the probe.
const timeout = time.Minute

// Expect is the set of guarantees to prove; a backend derives it from its configuration. The zero
// value has none.
type Expect struct {
	// Unprivileged: no capabilities in any set, no_new_privs and a system call filter.
	Unprivileged bool
	// NoNewRights: as Unprivileged, but for the bounding set, and commands cannot read the memory of
	// the helper.
	NoNewRights bool
	// Filters is the minimum number of system call filters.
	Filters int
	// User, if set, is the user that commands run as.
	User *User
	// ReadOnly are directories on read-only mounts. Missing ones are ignored.
	ReadOnly []string
	// Writable are directories that commands can write in, and Executable those that they can execute
	// programs in.
	Writable, Executable []string
	// Unwritable are directories in which commands cannot make files, Unreadable files and directories
	// that they cannot read, and Kept files and directories that they cannot change, by whatever
	// means.
	Unwritable, Unreadable, Kept []string
	// HiddenHome are files and directories of a home directory that commands cannot read.
	HiddenHome []string
	// GitDirs are git directories in which commands cannot make files.
	GitDirs []string
	// By names the enforcer of Unwritable, Unreadable, HiddenHome, Kept and GitDirs, such as
	// "Landlock", and SocketsBy that of Host.Sockets. The default is the kernel.
	By, SocketsBy string
	// Mounts, if not nil, are all mounts, except those that a container runtime makes in /dev, /proc
	// and /sys. Of several with the same Point one is enough.
	Mounts []Mount
	// OwnNamespaces: the namespaces are not the kernel's initial ones.
	OwnNamespaces bool
	// HostCgroups: that of control groups may be. A node of Kubernetes that has their version 1 shares
	// it.
	HostCgroups bool
	// NoNetwork: commands reach only themselves.
	NoNetwork bool
	// NoSockets: commands make no network sockets. Routes do not matter then.
	NoSockets bool
	// NoUnixSockets: commands make no unix sockets, and no pairs that can send to any name.
	NoUnixSockets bool
	// PIDs, Memory in bytes, without swap, and CPUs are limits; 0 means none.
	PIDs, Memory int64
	CPUs         float64
	// Vars, if not nil, are the names of all environment variables; a trailing star matches any
	// suffix.
	Vars []string
	// NoCredentials: sockets of privileged daemons and service account tokens are absent.
	NoCredentials bool
	// Host lists properties of the host that the probe must not find.
	Host Host
	// Helper is the file of the helper, on a read-only mount; commands cannot read the memory of the
	// helper.
	Helper string
}

// Mount is an expected mount.
type Mount struct {
	// Point is the absolute path of a directory or file. Symlinks in it are followed in the
	// environment.
	Point string
	// Root, if set, matches the mounted path inside its file system.
	Root *regexp.Regexp
	// Memory: it is a tmpfs with nosuid and nodev.
	Memory bool
}

// Host lists properties of the host that the probe must not find. If the kernel of the
// environment is not that of this machine, their absence proves nothing, and the findings report
// that.
type Host struct {
	// Files are absolute paths of files that everybody can see.
	Files []string
	// Listening are TCP addresses on 127.0.0.1, and Sockets paths of unix sockets.
	Listening []string
	Sockets   []string
	// Process is the ID of a process, and Name its name, such as "sandboxagent". 0 means none.
	Process int
	Name    string
}

// User is the user of a command.
type User struct{ UID, GID int }

// Finding is the verdict on one guarantee.
type Finding struct {
	Name   string `json:"name"`
	Found  string `json:"found"`
	Wanted string `json:"wanted"`
	// By names the enforcer.
	By string `json:"by"`
	OK bool   `json:"ok"`
}

// Report holds the findings in a fixed order.
type Report struct {
	Findings []Finding `json:"findings"`
}

// OK reports whether all findings are good and at least one exists.
func (r Report) OK() bool { return len(r.Findings) > 0 && len(r.Broken()) == 0 }

// Broken returns the findings that are not good.
func (r Report) Broken() []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.OK })
}

// Run executes the probe, argv with its subcommand appended, and compares its report with x. An
// error means that nothing is proved; one that wraps env.ErrProtocol, that the report is invalid.
func Run(ctx context.Context, r env.Runner, argv []string, x Expect) (Report, error) {
	q, err := json.Marshal(x.request())
	if err != nil {
		return Report{}, fmt.Errorf("probe: %w", err)
	}
	stdout, stderr := &bounded{limit: maxDocument}, &bounded{limit: 4 << 10}
	res, err := r.Exec(ctx, env.Command{
		Argv: append(slices.Clone(argv), "probe"), Dir: "/", Stdin: bytes.NewReader(q), Timeout: timeout,
		Stdout: stdout, Stderr: stderr,
	})
	switch {
	case errors.Is(err, errTooMuch):
		return Report{}, fmt.Errorf("probe: %w: too much output", env.ErrProtocol)
	case err != nil:
		return Report{}, fmt.Errorf("probe: %w", err)
	case res.TimedOut:
		return Report{}, fmt.Errorf("probe: no answer within %s", timeout)
	case res.ExitCode != 0:
		text := plain(strings.TrimSpace(stderr.kept.String()))
		return Report{}, fmt.Errorf("probe: exit code %d: %s", res.ExitCode, text)
	}
	d, err := decodeDocument(stdout.kept.Bytes())
	if err != nil {
		return Report{}, fmt.Errorf("probe: %w: %s", env.ErrProtocol, plain(err.Error()))
	}
	return x.judge(d, bootID()), nil
}

var errTooMuch = errors.New("too much output")

// bounded is a buffer that refuses more than limit bytes.
type bounded struct {
	kept  bytes.Buffer
	limit int
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	if b.kept.Len()+len(p) > b.limit {
		return 0, errTooMuch
	}
	return b.kept.Write(p)
}

// maxText bounds the text of a finding, in characters.
const maxText = 300

// plain returns text that is safe to show on a terminal.
func plain(text string) string {
	n := 0
	var b strings.Builder
	for _, r := range text {
		if n++; n > maxText {
			return b.String() + "…"
		}
		if !unicode.IsPrint(r) {
			r = unicode.ReplacementChar
		}
		b.WriteRune(r)
	}
	return b.String()
}
