package k8s

import (
	"context"
	"fmt"
	"slices"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/verify"
)

// Verify checks from inside the guarantees of the pod's configuration, and that host, which may be
// the zero value, is not found in it. An error means that nothing is proved.
func (e *Environment) Verify(ctx context.Context, host verify.Host) (verify.Report, error) {
	c := e.config
	if c.Image == "" {
		return verify.Report{}, fmt.Errorf("k8s: verify: only the client that opened the environment " +
			"has its configuration")
	}
	uid, gid := c.ids()
	x := verify.Expect{
		Unprivileged: true, Filters: 2, User: &verify.User{UID: int(uid), GID: int(gid)},
		ReadOnly:      []string{"/", "/usr", "/etc"},
		Writable:      []string{c.WorkDir, homeDir, tempDir},
		OwnNamespaces: true, HostCgroups: true, Memory: c.Memory, CPUs: c.CPUs, NoCredentials: true,
		Host: host, Helper: programPath,
	}
	if c.Fill != nil {
		x.Writable, x.ReadOnly = x.Writable[1:], append(x.ReadOnly, c.WorkDir)
	}
	x.Executable = x.Writable
	argv := append([]string{programPath}, e.handle.program.Args...)
	report, err := verify.Run(ctx, e, argv, x)
	if err != nil {
		return report, fmt.Errorf("k8s: verify: %w", err)
	}
	if g := e.network; g.Name != "" {
		f := verify.Finding{
			Name: string(env.NoNetwork), Found: "nothing answers", Wanted: "nothing answers", By: g.By,
			OK: g.Strength == env.Enforced,
		}
		if !f.OK {
			f.Found, f.By = g.By, "a network policy"
		}
		report.Findings = append(slices.Clone(report.Findings), f)
	}
	return report, nil
}
