package integration_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestDockerVerify verifies a sandbox that keeps its guarantees, and checks exit codes.
func TestDockerVerify(t *testing.T) {
	d := sharedDocker(t)
	t.Run("text", func(t *testing.T) {
		t.Parallel()
		got := d.run(t, t.TempDir(), nil, "env", "verify")
		if got.code != 0 || !strings.Contains(got.stdout, "\n0 of ") ||
			strings.Contains(got.stdout, "BROKEN") {
			t.Errorf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
		}
	})
	t.Run("json", func(t *testing.T) {
		t.Parallel()
		got := d.run(t, t.TempDir(), []string{"AWS_SECRET_ACCESS_KEY=canary"}, "env", "verify",
			"--output=json", "--memory=256MiB", "--user=root", "--var", "WORD=x")
		var r struct {
			Environment string
			Sandbox, OK bool
			Findings    []struct{ Name, Found, Wanted, By string }
		}
		if err := json.Unmarshal([]byte(got.stdout), &r); err != nil {
			t.Fatalf("exit code %d, %v\n%s", got.code, err, got.stderr)
		}
		if got.code != 0 || !r.Sandbox || !r.OK || r.Environment != "docker" {
			t.Errorf("exit code %d: %+v", got.code, r)
		}
		found := map[string]string{}
		for _, f := range r.Findings {
			found[f.Name] = f.Found
		}
		if found["memory-limit"] != "268435456" || found["host-files"] != "ENOENT" ||
			found["host-loopback"] != "ECONNREFUSED" {
			t.Errorf("found %v", found)
		}
	})
	for name, test := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no image": {[]string{"--pull=never", "--image=registry.invalid/x:1"}, 6, "registry.invalid/x:1"},
		"timeout":  {[]string{"--timeout=1ms"}, 6, "not done after 1ms (--timeout)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := d.run(t, t.TempDir(), nil, append([]string{"env", "verify"}, test.args...)...)
			if got.code != test.code || !strings.Contains(got.stderr, test.want) || got.stdout != "" {
				t.Errorf("exit code %d\n%s\n%s", got.code, got.stdout, got.stderr)
			}
		})
	}
}
