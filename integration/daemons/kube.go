package daemons

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// KubeVar names the variable that holds the kubeconfig file of the cluster that tests share.
const KubeVar = "SANDBOXAGENT_TEST_KUBECONFIG"

// Kubeconfig returns the kubeconfig file of an administrator of the cluster that tests share.
// Without one the test is skipped, or fails if the variable SANDBOXAGENT_REQUIRE holds k8s. With
// SANDBOXAGENT_TEST_CLUSTER=1 it is the file of KUBECONFIG, and the cluster must have the images of
// the constants.
func Kubeconfig(t testing.TB) string {
	t.Helper()
	file := kubeFile()
	if file == "" {
		Missing(t, "k8s", KubeVar+" is not set: run the tests by "+
			"go run ./integration/withdaemons --kube=10m")
	}
	return file
}

// OtherKube reports whether the shared cluster was not started for the tests. Its nodes may be
// other machines, and its network may enforce policies.
func OtherKube() bool { return os.Getenv("SANDBOXAGENT_TEST_CLUSTER") == "1" }

// kubeFile returns the kubeconfig file of the administrator; empty without a cluster.
func kubeFile() string {
	if OtherKube() {
		return os.Getenv("KUBECONFIG")
	}
	return os.Getenv(KubeVar)
}

// A KubeUser is a user of the shared cluster with the Role of the documentation and nothing more.
// Its namespace demands the Pod Security Standard restricted.
type KubeUser struct {
	// Config is the user's kubeconfig file, for that namespace.
	Config    string
	Namespace string

	admin string
}

// NewKubeUser makes a user of the shared cluster. docs is the page with the Role. The result is nil
// without a cluster.
// Remove removes the user.
func NewKubeUser(ctx context.Context, docs string) (*KubeUser, error) {
	admin := kubeFile()
	if admin == "" {
		return nil, nil
	}
	return NewKubeUserOf(ctx, admin, docs)
}

// NewKubeUserOf makes a user of the cluster of the administrator's kubeconfig file admin.
func NewKubeUserOf(ctx context.Context, admin, docs string) (_ *KubeUser, err error) {
	page, err := os.ReadFile(docs)
	if err != nil {
		return nil, err
	}
	role := regexp.MustCompile("(?s)```yaml\n(apiVersion: rbac[^`]*)```").FindSubmatch(page)
	if role == nil {
		return nil, fmt.Errorf("%s has no Role", docs)
	}
	dir, err := os.MkdirTemp("", "sandboxagent-kube-user-")
	if err != nil {
		return nil, err
	}
	u := &KubeUser{
		Config:    filepath.Join(dir, "config"),
		Namespace: fmt.Sprintf("sandboxagent-test-%x", rand.Uint32()),
		admin:     admin,
	}
	run := func(file, stdin string, args ...string) string {
		if err != nil {
			return ""
		}
		var out string
		out, err = Kubectl(ctx, file, stdin, args...)
		return strings.TrimSpace(out)
	}
	run(admin, fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: user, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: user, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: sandboxagent}
subjects: [{kind: ServiceAccount, name: user}]
`, u.Namespace), "apply", "-f", "-")
	run(admin, string(role[1]), "apply", "-n", u.Namespace, "-f", "-")
	token := run(admin, "", "create", "token", "user", "-n", u.Namespace, "--duration=8h")
	config := run(admin, "", "config", "view", "--raw", "--minify", "--flatten")
	if err == nil {
		err = os.WriteFile(u.Config, []byte(config), 0o600)
	}
	run(u.Config, "", "config", "set-credentials", "limited", "--token="+token)
	run(u.Config, "", "config", "set-context", "--current", "--user=limited",
		"--namespace="+u.Namespace)
	run(u.Config, "", "config", "delete-user", run(u.Config, "", "config", "view", "-o",
		`jsonpath={.users[?(@.name!="limited")].name}`))
	if err != nil {
		u.Remove(ctx)
		return nil, err
	}
	return u, nil
}

// Remove removes the namespace with everything in it. A nil user is none.
func (u *KubeUser) Remove(ctx context.Context) {
	if u == nil {
		return
	}
	// The cluster of the tests ends after them, and another one finishes by itself.
	_, _ = Kubectl(ctx, u.admin, "", "delete", "namespace", u.Namespace, "--wait=false")
	_ = os.RemoveAll(filepath.Dir(u.Config))
}

// Kubectl runs kubectl with a kubeconfig file and returns its stdout.
func Kubectl(ctx context.Context, kubeconfig, stdin string, args ...string) (string, error) {
	program := "kubectl"
	for _, file := range []string{kubeconfig, os.Getenv(KubeVar)} { // of a cluster of this package
		name := filepath.Join(filepath.Dir(file), "kubectl")
		if _, err := os.Stat(name); file != "" && err == nil {
			program = name
			break
		}
	}
	args = append([]string{"--kubeconfig=" + kubeconfig}, args...)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err,
			bytes.TrimSpace(failure.Bytes()))
	}
	return out.String(), nil
}
