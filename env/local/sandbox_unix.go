//go:build unix

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/confine"
)

// maxTries bounds how often a sandbox is begun while sockets that it is to hide come and go.
const maxTries = 3

// Sandboxed is Supervised in a sandbox: the helper, and with it everything that it starts, is confined once, before it
// begins. Without s.Require and s.Enforce there may be no sandbox around what it returns. An error about what s names is an
// *fs.PathError or has no type; a *SandboxError tells that this machine is the reason. Paths of cfg.Dir that lead over
// links are resolved.
func Sandboxed(ctx context.Context, cfg Config, h Helper, s Sandbox) (*SupervisedEnvironment, error) {
	return sandboxed(ctx, cfg, h, s, confine.Mechanisms())
}

// sandboxed tries mechanisms in their order.
func sandboxed(ctx context.Context, cfg Config, h Helper, s Sandbox, mechanisms []confine.Mechanism) (*SupervisedEnvironment, error) {
	dir, err := workDir(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("local: working directory: %w", err)
	}
	if cfg.Dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, fmt.Errorf("local: working directory: %w", pathError("stat", dir, err))
	}
	policy := confine.Policy{Dir: cfg.Dir, Write: s.Write, Read: s.Read, Hide: s.Hide, Network: s.Network}
	none := new(SandboxError)
	if err := confine.Usable(cfg.Dir); err != nil {
		none.Reasons = append(none.Reasons, err)
		return unconfined(ctx, cfg, h, s, none)
	}
	for _, by := range mechanisms {
		e, err := confinedBy(ctx, cfg, h, policy, by)
		var unable *confine.Error
		var helper *HelperError
		switch {
		case err == nil:
			missing := s.missing(e.Info())
			if len(missing) == 0 {
				e.weaker = oneLine(none.Reasons)
				return e, nil
			}
			none.Missing = missing
			none.Reasons = append(none.Reasons, lacking(e.Info(), missing)...)
			if err := e.Close(); err != nil {
				return nil, err
			}
		case errors.As(err, &unable):
			none.Reasons = append(none.Reasons, err)
			if unable.By == "" { // the others would say the same
				return unconfined(ctx, cfg, h, s, none)
			}
		case errors.As(err, &helper) && ctx.Err() == nil:
			none.Reasons = append(none.Reasons, &notStarted{by, helper})
		default:
			return nil, err
		}
	}
	if len(none.Reasons) == 0 {
		none.Reasons = append(none.Reasons, confine.ErrNone)
	}
	return unconfined(ctx, cfg, h, s, none)
}

// unconfined does without a sandbox where s allows that.
func unconfined(ctx context.Context, cfg Config, h Helper, s Sandbox, why *SandboxError) (*SupervisedEnvironment, error) {
	if s.Require || len(s.Enforce) > 0 {
		return nil, why
	}
	e, err := Supervised(ctx, cfg, h)
	if err == nil {
		e.bare = oneLine(why.Reasons)
	}
	return e, err
}

// notStarted is why a helper did not start with a mechanism. Another helper may.
type notStarted struct {
	by  confine.Mechanism
	err *HelperError
}

func (r *notStarted) Error() string {
	text := fmt.Sprintf("%s: %s", r.by, strings.TrimRight(r.err.Err.Error(), "."))
	if hint := confine.Hint(r.by); hint != "" {
		text += "; " + hint
	}
	return text
}

// Unwrap returns the cause.
func (r *notStarted) Unwrap() error { return r.err }

// confinedBy starts a helper with a mechanism, more than once if the machine changes meanwhile.
func confinedBy(ctx context.Context, cfg Config, h Helper, policy confine.Policy, by confine.Mechanism) (*SupervisedEnvironment, error) {
	for tries := 1; ; tries++ {
		plan, err := confine.New(policy, by, confine.Homes(), os.Getenv)
		if err != nil {
			return nil, err
		}
		e, err := confined(ctx, cfg, h, plan)
		if err == nil || tries == maxTries || ctx.Err() != nil || !plan.Outdated() {
			return e, err
		}
	}
}

// confined starts a helper by a plan.
func confined(ctx context.Context, cfg Config, h Helper, plan confine.Plan) (e *SupervisedEnvironment, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, plan.Tidy())
		}
	}()
	temp := ""
	if plan.Temp == "" {
		if temp, err = os.MkdirTemp("", "sandboxagent-tmp-"); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, os.RemoveAll(temp))
			}
		}()
		if plan.Temp, err = filepath.EvalSymlinks(temp); err != nil {
			return nil, err
		}
	}
	cfg.Vars = append(plan.Vars(), cfg.Vars...)
	if e, err = supervise(ctx, cfg, h, &plan); err != nil {
		return nil, err
	}
	e.plan, e.program = &plan, h
	e.temp, e.tidy = temp, plan.Tidy
	return e, nil
}

// oneLine returns reasons as one error; nil if there is none.
func oneLine(reasons []error) error {
	if len(reasons) == 0 {
		return nil
	}
	var texts []string
	for _, r := range reasons {
		texts = append(texts, r.Error())
	}
	return errors.New(strings.Join(texts, "; "))
}

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
