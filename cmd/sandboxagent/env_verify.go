package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/verify"
)

// canaryVar is a variable of this process while it verifies, which no environment may show.
const canaryVar = "SANDBOXAGENT_CANARY"

// canaryDir is the prefix of the directory of the file that no environment may show.
const canaryDir = "sandboxagent-verify-"

// commLength is the length of a process name in the kernel.
const commLength = 15

// verifier is an environment that can prove its guarantees.
type verifier interface {
	Verify(ctx context.Context, host verify.Host) (verify.Report, error)
}

func (p *program) verifyCommand() *cli.Command {
	unused := []string{"env-id", "read-only", "upload", "download", "upload-ignored", "keep"}
	flags := slices.DeleteFunc(environmentFlags(groupCommand, "give up after this `DURATION`"),
		func(f cli.Flag) bool {
			return slices.Contains(unused, f.Names()[0])
		})
	return &cli.Command{
		Usage:     "open an environment and run a probe in it that tests its guarantees",
		ArgsUsage: "[flags]",
		UsageText: `
sandboxagent env verify --sandbox require
sandboxagent env verify --env docker -o json`,
		Description: `
Each line has ok or BROKEN, the property, the value found, the value expected, and the enforcer of
the guarantee. Exit codes: 0 all guarantees hold, 1 at least one does not, or no sandbox can be
verified, 2 wrong usage, 6 the environment failed, or a required sandbox is unavailable.`,
		Flags: append([]cli.Flag{
			&cli.StringFlag{
				Name: "output", Aliases: []string{"o"}, Category: groupOutput, Value: formatText,
				Usage: "write standard output in `FORMAT`: text or json",
			},
		}, flags...),
		Action: p.action(p.verify),
	}
}

// verify is the command env verify.
func (p *program) verify(ctx context.Context, c *cli.Context) (code int, err error) {
	if err := noArguments(c); err != nil {
		return 0, err
	}
	format := c.String("output")
	if format != formatText && format != formatJSON {
		return 0, usagef("--output: %q is not one of text, json", format)
	}
	s, err := p.parseEnvironmentFlags(c)
	if err != nil {
		return 0, err
	}
	s.copyTree = c.IsSet("workdir")
	if s.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("not done after %s (--timeout)",
			s.timeout))
		defer cancel()
	}
	host, remove, err := prepareHost(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	e, err := p.open(ctx, s)
	if err != nil {
		return 0, err
	}
	defer func() {
		cerr := e.close()
		err = errors.Join(err, cerr, e.logError())
	}()
	info := e.plain.Info()
	r := verification{
		Environment: s.backend.name(), Findings: []verify.Finding{},
		Guarantees: append([]env.Guarantee{}, info.Guarantees...),
	}
	report, err := verifyEnvironment(ctx, e, host)
	switch {
	case err == nil:
		r.Sandbox, r.OK, r.Findings = true, report.OK(), report.Findings
	case !errors.Is(err, errors.ErrUnsupported):
		return 0, err
	default:
		r.rights = "your rights"
		if e.account != "" {
			r.rights = "the rights of " + e.account
		}
		if info.Strength(env.Isolation) != env.Absent {
			r.rights = ""
		}
	}
	if err := p.showVerification(r, format); err != nil {
		return 0, err
	}
	if !r.OK {
		return codeFailed, nil
	}
	return codeDone, nil
}

// verifyEnvironment has an environment prove its guarantees. An error that wraps
// errors.ErrUnsupported means that it has no sandbox.
func verifyEnvironment(
	ctx context.Context, e *environment, host verify.Host,
) (verify.Report, error) {
	v, ok := e.plain.(verifier)
	if !ok {
		return verify.Report{}, errors.ErrUnsupported
	}
	return v.Verify(ctx, host)
}

// verification is the output of the command.
type verification struct {
	Environment string `json:"environment"`
	// Sandbox reports that the environment has a sandbox that can be verified.
	Sandbox  bool             `json:"sandbox"`
	OK       bool             `json:"ok"`
	Findings []verify.Finding `json:"findings"`
	// Promises are the guarantees of the environment, verified or not.
	Guarantees []env.Guarantee `json:"promises"`
	// rights are those of commands without a sandbox.
	rights string
}

// prepareHost creates resources that no command may reach: a file, listeners on TCP and on a unix
// socket, and a variable of this process. The caller calls remove in the end.
func prepareHost(ctx context.Context) (host verify.Host, remove func() error, err error) {
	// A user's private temporary directory would be inaccessible to commands anyway, which proves
	// nothing.
	dir, err := os.MkdirTemp("/tmp", canaryDir)
	if err != nil {
		dir, err = os.MkdirTemp("", canaryDir)
	}
	if err != nil {
		return host, nil, err
	}
	name := filepath.Join(dir, "canary")
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return host, nil, errors.Join(err, os.RemoveAll(dir))
	}
	socket := filepath.Join(dir, "socket")
	named, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return host, nil, errors.Join(err, l.Close(), os.RemoveAll(dir))
	}
	remove = func() error {
		return errors.Join(l.Close(), named.Close(), os.RemoveAll(dir),
			os.Unsetenv(canaryVar))
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(socket, 0o777), os.WriteFile(name,
		[]byte("canary\n"), 0o600), os.Chmod(name, 0o644), os.Setenv(canaryVar, "canary")); err != nil {
		return host, nil, errors.Join(err, remove())
	}
	program, _ := os.Executable() // without a name the probe does not search for it
	return verify.Host{
		Files: []string{filepath.ToSlash(name)}, Listening: []string{l.Addr().String()},
		Sockets: []string{filepath.ToSlash(socket)},
		Process: os.Getpid(), Name: filepath.Base(program)[:min(len(filepath.Base(program)), commLength)],
	}, remove, nil
}

// showVerification prints the result.
func (p *program) showVerification(r verification, format string) error {
	if format == formatJSON {
		e := json.NewEncoder(p.std.out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	table := tabwriter.NewWriter(p.std.out, 0, 8, 2, ' ', 0)
	if !r.Sandbox {
		showGuarantees(table, r)
		return table.Flush()
	}
	_, _ = fmt.Fprintln(table, "RESULT\tNAME\tFOUND\tEXPECTED\tBY") // Flush returns the error
	broken := 0
	for _, f := range r.Findings {
		word := "ok"
		if !f.OK {
			word = "BROKEN"
			broken++
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", word, f.Name, f.Found, f.Wanted, f.By)
	}
	err := table.Flush()
	if err == nil {
		_, err = fmt.Fprintf(p.std.out, "%d of %d guarantees are broken\n", broken, len(r.Findings))
	}
	return err
}

// showPromises prints the guarantees of an environment that was not verified.
func showGuarantees(w io.Writer, r verification) {
	if r.rights == "" {
		_, _ = fmt.Fprintf(w, "the sandbox of the environment %s cannot be verified from here; it "+
			"reports:\n", r.Environment)
	} else {
		_, _ = fmt.Fprintf(w, "the environment %s has no sandbox: commands have %s, and nothing was "+
			"verified; it reports:\n", r.Environment, r.rights)
	}
	_, _ = fmt.Fprintln(w, "PROMISE\tSTRENGTH\tBY")
	for _, g := range r.Guarantees {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", g.Name, g.Strength, cmp.Or(g.By, "-"))
	}
}
