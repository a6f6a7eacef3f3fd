//go:build unix

package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/confine"
)

// maxTries bounds how often a sandbox is begun while sockets that it is to hide come and go.
const maxTries = 3

// None says why there is no sandbox, or none that keeps what is Missing.
type None struct {
	Missing []env.Promise
	Reasons []error
}

// Why returns the reasons as one line; empty if there is none.
func (n *None) Why() string {
	var texts []string
	for _, r := range n.Reasons {
		texts = append(texts, r.Error())
	}
	return strings.Join(texts, "; ")
}

// Failure is an error of a start that may not come with another kind of sandbox.
type Failure struct {
	// Text tells of it; Err is what callers look for.
	Text string
	Err  error
}

func (f *Failure) Error() string { return f.Text }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// An Attempt starts a helper by a plan, and returns what that promises, and what ends it and tidies up. It tidies up itself
// where it fails. What failed for the sake of the kind of sandbox is a *Failure.
type Attempt func(plan confine.Plan) (promises env.Info, end func() error, err error)

// Choose has a helper started in the strongest sandbox for a folder, which is free of links, that can be had and that enforces
// what it must. It returns why there is none, and an error about what s names, or about the helper.
func Choose(ctx context.Context, dir string, s env.Sandbox, mechanisms []confine.Mechanism, start Attempt) (*None, error) {
	policy := confine.Policy{Dir: dir, Write: s.Write, Read: s.Read, Hide: s.Hide, Network: s.Network}
	none := new(None)
	if err := confine.Usable(dir); err != nil {
		none.Reasons = append(none.Reasons, err)
		return none, nil
	}
	for _, by := range mechanisms {
		promises, end, err := tried(ctx, policy, by, none.Why(), start)
		var unable *confine.Error
		var failed *Failure
		switch {
		case err == nil:
			none.Missing = slices.DeleteFunc(slices.Clone(s.Enforce), func(p env.Promise) bool { return promises.Strength(p) == env.Enforced })
			if len(none.Missing) == 0 {
				return nil, nil
			}
			none.Reasons = append(none.Reasons, lacking(promises, none.Missing)...)
			if err := end(); err != nil {
				return nil, err
			}
		case errors.As(err, &unable):
			none.Reasons = append(none.Reasons, err)
			if unable.By == "" { // the others would say the same
				return none, nil
			}
		case errors.As(err, &failed) && ctx.Err() == nil:
			none.Reasons = append(none.Reasons, &notStarted{by, failed})
		default:
			return nil, err
		}
	}
	if len(none.Reasons) == 0 {
		none.Reasons = append(none.Reasons, confine.ErrNone)
	}
	return none, nil
}

// tried starts a helper with a mechanism, more than once if the machine changes meanwhile.
func tried(ctx context.Context, policy confine.Policy, by confine.Mechanism, weaker string, start Attempt) (env.Info, func() error, error) {
	for tries := 1; ; tries++ {
		plan, err := confine.New(policy, by, confine.Homes(), os.Getenv)
		if err != nil {
			return env.Info{}, nil, err
		}
		plan.Weaker = weaker
		if err := ownTemp(&plan); err != nil {
			return env.Info{}, nil, errors.Join(err, plan.Tidy())
		}
		promises, end, err := start(plan)
		if err == nil || tries == maxTries || ctx.Err() != nil || !plan.Outdated() {
			return promises, end, err
		}
	}
}

// ownTemp makes the folder for temporary files where a plan has none.
func ownTemp(plan *confine.Plan) (err error) {
	if plan.Temp != "" {
		return nil
	}
	if plan.Made, err = os.MkdirTemp("", "sandboxagent-tmp-"); err != nil {
		return err
	}
	plan.Temp, err = filepath.EvalSymlinks(plan.Made)
	return err
}

// notStarted is why a helper did not start with a mechanism. Another helper may.
type notStarted struct {
	by  confine.Mechanism
	err *Failure
}

func (r *notStarted) Error() string {
	text := fmt.Sprintf("%s: %s", r.by, strings.TrimRight(r.err.Text, "."))
	if hint := confine.Hint(r.by); hint != "" {
		text += "; " + hint
	}
	return text
}

// Unwrap returns the cause.
func (r *notStarted) Unwrap() error { return r.err }

// lacking returns who does not keep promises.
func lacking(info env.Info, missing []env.Promise) (reasons []error) {
	for _, p := range missing {
		for _, g := range info.Guarantees {
			if g.Promise == p {
				reasons = append(reasons, fmt.Errorf("%s is %s: %s", p, g.Strength, g.By))
			}
		}
	}
	return reasons
}
