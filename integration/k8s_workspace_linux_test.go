package integration_test

import "testing"

// TestK8sWorkspace has commands change the workspace in ways that must not reach this machine.
func TestK8sWorkspace(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left to make test-full: containers have the same cases")
	}
	k := sharedKube(t)
	t.Run("hostile", func(t *testing.T) { proveHostileChanges(t, k) })
	t.Run("unreadable", func(t *testing.T) { proveUnreadable(t, k) })
}
