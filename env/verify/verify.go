// Package verify proves from the inside what an environment promises: a program in it looks at what a command can see and
// do, and what it found is compared with what was promised.
//
// Run runs that program, the probe, which is the helper's own subcommand, and judges. Each Finding is one promise: what was
// found, what was wanted, and who keeps it. What the probe does not tell counts as broken, never as kept.
//
// # What it cannot prove
//
// The probe runs in the sandbox, like any command, and its answer is only as true as the sandbox was when it ran: verify
// an environment that is fresh. A sandbox that somebody has taken over can lie. What the kernel keeps may have defects
// that no probe knows of, and what two sandboxes learn of each other by timing is not looked at. A container within a
// container looks the same whether or not the outer one is safe.
package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/probe"
)

// timeout bounds a run of the probe.
const timeout = time.Minute

// Expect is what an environment promises. The zero value promises nothing, and nothing is judged. A backend makes it of
// its configuration.
type Expect struct {
	// Unprivileged: no capabilities, no way to gain rights, a system call filter, no devices, and nothing of the kernel's that
	// changes or shows the machine.
	Unprivileged bool
	// NoNewRights is the part of Unprivileged that does not depend on what can be seen: a process has no rights beyond those of
	// its user, gains none, and does not take hold of the helper.
	NoNewRights bool
	// Filters is how many system call filters there are at least.
	Filters int
	// User, if set, is who commands run as.
	User *User
	// ReadOnly are folders in which nobody can write, and whose file systems are mounted so. Of those that are missing nothing
	// is wanted.
	ReadOnly []string
	// Writable are folders in which commands write, and Executable those from which they can start programs.
	Writable, Executable []string
	// Unwritable are folders in which nobody can make a file, whatever keeps them from it, and Unreadable files and folders of
	// which nothing can be read.
	Unwritable, Unreadable []string
	// Kept are files and folders that nobody can change.
	Kept []string
	// By names what keeps commands from Unwritable, Unreadable and Kept, such as "Landlock", and SocketsBy what keeps them from
	// the sockets of Host. Empty, it is the kernel.
	By, SocketsBy string
	// Mounts, if not nil, are all mounts, but for those that the runtime of a container makes in /dev, /proc and /sys. Of
	// several with the same name one is enough.
	Mounts []Mount
	// OwnNamespaces: processes, users of shared memory, names of the machine and control groups are the environment's own.
	OwnNamespaces bool
	// Apart are the numbers of namespaces that are not the environment's own, by kind, such as "pid".
	Apart map[string]uint64
	// Init, if set, is the name of process 1.
	Init string
	// NoNetwork: commands reach nothing but themselves.
	NoNetwork bool
	// NoSockets: commands make no sockets for any network, so that what there is of one does not matter.
	NoSockets bool
	// PIDs, Memory in bytes, without swap, and CPUs are limits; 0 means that none is promised.
	PIDs, Memory int64
	CPUs         float64
	// NoCoreFiles: a command that crashes leaves no core file.
	NoCoreFiles bool
	// Vars, if not nil, are the names of all variables; a star at the end stands for any characters.
	Vars []string
	// NoCredentials: neither sockets of daemons that command the machine nor tokens of services are there.
	NoCredentials bool
	// Host is what must not be found of the host.
	Host Host
	// Helper is the file of the helper, which commands can neither read nor write, and neither can they read the memory
	// of the helper that runs, nor trace process 1; empty if there is none.
	Helper string
}

// Mount is a mount that may be there.
type Mount struct {
	// Point is the absolute name of a folder or file. Links in it are followed in the environment.
	Point string
	// Root, if set, matches the name, in its file system, of what is mounted.
	Root *regexp.Regexp
	// Memory: it is a file system in memory, in which neither devices nor the rights of programs count.
	Memory bool
}

// Host is what the host has prepared to be looked for from the inside, in vain. An environment whose kernel is not this
// machine's proves nothing by that it does not find them, and only tells.
type Host struct {
	// Files are absolute names of files that anybody can see who has the file system.
	Files []string
	// Listening are TCP addresses on 127.0.0.1, and Sockets names of unix sockets.
	Listening []string
	Sockets   []string
	// Process is the number of a process, and Name its name, such as "sandboxagent". 0 is none.
	Process int
	Name    string
}

// User is who a command runs as.
type User struct{ UID, GID int }

// Finding is one promise and what was found of it.
type Finding struct {
	Name   string `json:"name"`
	Found  string `json:"found"`
	Wanted string `json:"wanted"`
	// By names who keeps the promise.
	By string `json:"by"`
	OK bool   `json:"ok"`
}

// Report is what Run found, in an order that is always the same.
type Report struct {
	Findings []Finding `json:"findings"`
}

// OK reports whether there are findings and all of them are good.
func (r Report) OK() bool { return len(r.Findings) > 0 && len(r.Broken()) == 0 }

// Broken returns the findings that are not good.
func (r Report) Broken() []Finding {
	var all []Finding
	for _, f := range r.Findings {
		if !f.OK {
			all = append(all, f)
		}
	}
	return all
}

// Run runs the probe, which argv starts but for the name of its subcommand, and compares what it says with x. An error
// means that nothing is known: the probe could not run, or what it said, which is an error that wraps env.ErrProtocol,
// is no answer.
func Run(ctx context.Context, r env.Runner, argv []string, x Expect) (Report, error) {
	q, err := json.Marshal(x.request())
	if err != nil {
		return Report{}, fmt.Errorf("probe: %w", err)
	}
	out, said := &bounded{limit: probe.MaxDocument}, &bounded{limit: 4 << 10}
	res, err := r.Exec(ctx, env.Command{
		Argv: append(slices.Clone(argv), "probe"), Dir: "/", Stdin: bytes.NewReader(q), Stdout: out, Stderr: said, Timeout: timeout,
	})
	switch {
	case errors.Is(err, errTooMuch):
		return Report{}, fmt.Errorf("probe: %w: it says too much", env.ErrProtocol)
	case err != nil:
		return Report{}, fmt.Errorf("probe: %w", err)
	case res.TimedOut:
		return Report{}, fmt.Errorf("probe: no answer within %s", timeout)
	case res.ExitCode != 0:
		return Report{}, fmt.Errorf("probe: exit code %d: %s", res.ExitCode, plain(strings.TrimSpace(said.kept.String())))
	}
	d, err := probe.Decode(out.kept.Bytes())
	if err != nil {
		return Report{}, fmt.Errorf("probe: %w: %s", env.ErrProtocol, plain(err.Error()))
	}
	return x.judge(d, probe.Boot()), nil
}

// request is what the probe has to try.
func (x Expect) request() probe.Request {
	q := probe.Request{
		Write: slices.Concat(x.Writable, x.ReadOnly, x.Unwritable), Change: x.Kept, Read: x.Unreadable, Dial: x.Host.Sockets, Execute: x.Executable, Find: slices.Concat(tokens(), x.Host.Files), Sockets: sockets(),
		Connect: x.Host.Listening, Helper: x.Helper,
	}
	for _, m := range x.Mounts {
		q.Resolve = append(q.Resolve, path.Clean(m.Point))
	}
	return q
}

var errTooMuch = errors.New("too much output")

// bounded keeps what is written to it, and refuses more than limit bytes.
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

// maxText is how many characters a finding has of what the sandbox says.
const maxText = 300

// plain returns text that can be shown on a terminal.
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
