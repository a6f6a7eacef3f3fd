package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
)

// maxTries bounds the starts of one sandbox while mounts, and sockets that it has to hide, come and
// go.
const maxTries = 3

// Unavailable reports why no sandbox runs, or none that enforces Missing.
type Unavailable struct {
	Missing []env.GuaranteeName
	Reasons []error
}

// Reason returns the reasons as one line, or "".
func (n *Unavailable) Reason() string {
	var texts []string
	for _, r := range n.Reasons {
		texts = append(texts, r.Error())
	}
	return strings.Join(texts, "; ")
}

// StartFailure is an error of a start that another mechanism may avoid.
type StartFailure struct {
	// Text is the message; Err is the error to unwrap.
	Text string
	Err  error
}

func (f *StartFailure) Error() string { return f.Text }

// Unwrap returns the cause.
func (f *StartFailure) Unwrap() error { return f.Err }

// StartFunc starts a helper by a plan. It returns the guarantees of the helper, and a function that
// ends the helper and calls Plan.Tidy. On an error it has tidied up; an error that another
// mechanism may avoid is a *StartFailure.
type StartFunc func(plan Plan) (info env.Info, end func() error, err error)

// Machine are the properties of a machine that plans depend on.
type Machine struct {
	// Mechanisms are those to try, in this order.
	Mechanisms []Mechanism
	// Homes are the home directories in which secrets are hidden.
	Homes []string
}

// ThisMachine returns the mechanisms of this system and the home directories that this user can
// read.
func ThisMachine() Machine { return Machine{Mechanisms: Mechanisms(), Homes: HomeDirs()} }

// Choose calls start for the strongest available sandbox that enforces s.Enforce. dir has no
// symlinks; the paths in keep stay read-only even where s allows writes. It returns why no sandbox
// runs, or an error about a path in s or about the helper.
func Choose(
	ctx context.Context,
	dir string,
	s env.Sandbox,
	keep []string,
	on Machine,
	start StartFunc,
) (*Unavailable, error) {
	policy := Policy{
		Dir:      dir,
		Write:    s.Write,
		ReadOnly: keep,
		Read:     s.Read,
		Hide:     s.Hide,
		Network:  s.Network,

		NoUnixSockets: s.NoUnixSockets,
		GitReadOnly:   s.GitReadOnly,
		DirReadOnly:   s.ReadOnly,
	}
	none := new(Unavailable)
	var unusable *Error
	if err := CheckAccess(dir); errors.As(err, &unusable) {
		none.Reasons = append(none.Reasons, err)
		return none, nil
	} else if err != nil {
		return nil, err
	}
	for _, by := range on.Mechanisms {
		info, end, err := tryMechanism(ctx, policy, by, on.Homes, s.Enforce, none.Reason(), start)
		var unable *Error
		var failed *StartFailure
		switch {
		case err == nil:
			if none.Missing = notEnforced(info, s.Enforce); len(none.Missing) == 0 {
				return nil, nil
			}
			none.Reasons = append(none.Reasons, reasons(info, none.Missing)...)
			if end == nil { // it was not started
				break
			}
			if err := end(); err != nil {
				return nil, err
			}
		case errors.As(err, &unable):
			none.Reasons = append(none.Reasons, err)
			if unable.By == "" { // the others would fail the same way
				return none, nil
			}
		case errors.As(err, &failed) && ctx.Err() == nil:
			none.Reasons = append(none.Reasons, &startRefused{by, failed})
		default:
			return nil, err
		}
	}
	if len(none.Reasons) == 0 {
		none.Reasons = append(none.Reasons, ErrUnsupported)
	}
	return none, nil
}

// tryMechanism starts a helper with one mechanism, again if the machine changed meanwhile. It
// starts none, and returns no end, if the plan already fails to enforce one of enforce.
func tryMechanism(
	ctx context.Context,
	policy Policy,
	by Mechanism,
	homes []string,
	enforce []env.GuaranteeName,
	weaker string,
	start StartFunc,
) (env.Info, func() error, error) {
	for tries := 1; ; tries++ {
		mounts := watchMounts()
		defer func() { _ = unix.Close(mounts) }()
		plan, err := New(policy, by, homes, os.Getenv)
		if err != nil {
			return env.Info{}, nil, err
		}
		stated := env.Info{Guarantees: plan.Guarantees()}
		if slices.ContainsFunc(notEnforced(stated, enforce), func(p env.GuaranteeName) bool {
			return slices.ContainsFunc(
				stated.Guarantees, func(g env.Guarantee) bool { return g.Name == p },
			)
		}) {
			return stated, nil, plan.Tidy()
		}
		plan.WhyWeaker = weaker
		if err := makeTemp(&plan); err != nil {
			return env.Info{}, nil, errors.Join(err, plan.Tidy())
		}
		info, end, err := start(plan)
		if err == nil || tries == maxTries || ctx.Err() != nil || !plan.Outdated() && !changed(mounts) {
			return info, end, err
		}
	}
}

// watchMounts opens the table of mounts for changed; -1 if it cannot be read. Bubblewrap mounts
// each of them again, and fails if one goes meanwhile. The table is no os.File, whose own polling
// would take the news.
func watchMounts() int {
	table, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return table
}

// changed reports whether mounts have come or gone since watchMounts (proc_pid_mountinfo(5)).
func changed(table int) bool {
	poll := []unix.PollFd{{Fd: int32(table), Events: unix.POLLPRI}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0 && poll[0].Revents&unix.POLLPRI != 0
}

// makeTemp makes the directory for temporary files if the plan has none.
func makeTemp(plan *Plan) (err error) {
	if plan.Temp != "" {
		return nil
	}
	if plan.OwnTemp, err = os.MkdirTemp("", "sandboxagent-tmp-"); err != nil {
		return err
	}
	plan.Temp, err = filepath.EvalSymlinks(plan.OwnTemp)
	return err
}

// startRefused is the reason why a helper did not start with a mechanism.
type startRefused struct {
	by  Mechanism
	err *StartFailure
}

func (r *startRefused) Error() string {
	text := fmt.Sprintf("%s: %s", r.by, strings.TrimRight(r.err.Text, "."))
	if hint := Hint(r.by); hint != "" {
		text += "; " + hint
	}
	return text
}

// Unwrap returns the cause.
func (r *startRefused) Unwrap() error { return r.err }

// notEnforced returns the elements of enforce that info does not enforce.
func notEnforced(info env.Info, enforce []env.GuaranteeName) []env.GuaranteeName {
	return slices.DeleteFunc(
		slices.Clone(enforce), func(p env.GuaranteeName) bool { return info.Strength(p) == env.Enforced },
	)
}

// reasons returns an error for each of missing, with its enforcer.
func reasons(info env.Info, missing []env.GuaranteeName) (all []error) {
	for _, p := range missing {
		for _, g := range info.Guarantees {
			if g.Name == p {
				all = append(all, fmt.Errorf("%s is %s: %s", p, g.Strength, g.By))
			}
		}
	}
	return all
}
