package daemons

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	file := os.Getenv(KubeVar)
	if os.Getenv("SANDBOXAGENT_TEST_CLUSTER") == "1" {
		file = os.Getenv("KUBECONFIG")
	}
	if file == "" {
		Missing(t, "k8s", KubeVar+" is not set: run the tests by "+
			"go run ./integration/withdaemons --kube")
	}
	return file
}

// Kubectl runs kubectl as the administrator of a kubeconfig file and returns its stdout.
func Kubectl(ctx context.Context, kubeconfig, stdin string, args ...string) (string, error) {
	program := filepath.Join(filepath.Dir(kubeconfig), "kubectl") // of a cluster of this package
	if _, err := os.Stat(program); err != nil {
		program = "kubectl"
		args = append([]string{"--kubeconfig=" + kubeconfig}, args...)
	}
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
