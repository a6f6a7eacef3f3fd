package integration_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
)

// TestK8sRefused takes rights from a user. Without pods the program says why in the cluster's
// words, exits with its code for environments, and leaves nothing behind.
func TestK8sRefused(t *testing.T) {
	t.Parallel()
	admin := daemons.Kubeconfig(t)
	user, err := daemons.NewKubeUserOf(t.Context(), admin, "../docs/k8s.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Remove(context.Background()) })
	k, name := kubeHost{user.Config}, user.Namespace
	kubectl := func(stdin string, args ...string) string {
		t.Helper()
		out, err := daemons.Kubectl(context.WithoutCancel(t.Context()), admin, stdin,
			append([]string{"-n", name}, args...)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	defer kubectl("", "delete", "validatingadmissionpolicies,validatingadmissionpolicybindings", name,
		"--ignore-not-found")
	denied := func(reason string) func() bool {
		return func() bool {
			_, err := daemons.Kubectl(t.Context(), user.Config, "", "get", "pods")
			return err != nil && strings.Contains(err.Error(), reason)
		}
	}
	// The Role may lack the rule about events.
	kubectl("", "patch", "role", "sandboxagent", "--type=json",
		`--patch=[{"op": "test", "path": "/rules/2/resources/0", "value": "events"},
			{"op": "remove", "path": "/rules/2"}]`)
	await(t, "the end of the rule", func() bool {
		_, err := daemons.Kubectl(t.Context(), user.Config, "", "get", "events")
		return err != nil && strings.Contains(err.Error(), "orbidden")
	})
	if got := finish(t, k.command(t, t.TempDir(), newMark(), "exec", "--", "true")); got.code != 0 {
		t.Errorf("without events: %+v", got)
	}
	for _, refusal := range []struct {
		name, text string
		begin      func()
		began      func() bool // nil if the program sees it itself, after it has made some pods
		end        []string
	}{
		{
			"quota", "exceeded quota: none", func() {
				kubectl("", "create", "quota", "none", "--hard=pods=0")
				kubectl("", "wait", "--for=jsonpath={.status.hard.pods}=0", "quota/none")
			}, nil, []string{"delete", "quota", "none"},
		},
		{
			"admission policy", "the team allows no pods", func() {
				kubectl(fmt.Sprintf(admissionPolicy, name), "apply", "-f", "-")
			}, nil, []string{
				"delete", "validatingadmissionpolicies,validatingadmissionpolicybindings", name,
			},
		},
		{"revoked Role", "is forbidden: ", func() {
			kubectl("", "delete", "rolebinding", "user")
		}, denied("orbidden"), nil},
		{"expired token", "rejects the credentials", func() {
			kubectl("", "delete", "serviceaccount", "user")
		}, denied("nauthorized"), nil},
	} {
		run := func(args ...string) ran {
			return finish(t, k.command(t, t.TempDir(), newMark(), args...))
		}
		refusal.begin()
		if refusal.began != nil {
			await(t, refusal.name, refusal.began)
		}
		var got ran
		await(t, refusal.name, func() bool {
			got = run("exec", "--", "true")
			return got.code != 0
		})
		if got.code != 125 || !strings.Contains(got.stderr, refusal.text) {
			t.Errorf("%s: exec: %+v", refusal.name, got)
		}
		got = run("tool", "list_dir", "--args={}")
		if got.code != 6 || !strings.Contains(got.stderr, refusal.text) {
			t.Errorf("%s: tool: %+v", refusal.name, got)
		}
		await(t, "the end of all pods", func() bool {
			return kubectl("", "get", "pods,networkpolicies,secrets", "-o", "name") == ""
		})
		if refusal.end != nil {
			kubectl("", refusal.end...)
		}
	}
}

// admissionPolicy refuses all pods of a namespace.
const admissionPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations:
  - {expression: "false", message: the team allows no pods}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`
