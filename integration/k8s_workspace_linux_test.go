package integration_test

import "testing"

// TestK8sWorkspace has commands change the workspace in ways that must not reach this machine, and
// files that go to a pod and come from it.
func TestK8sWorkspace(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("left to make test-full: containers have the same cases")
	}
	k := sharedKube(t)
	t.Run("hostile", func(t *testing.T) { proveHostileChanges(t, k) })
	t.Run("unreadable", func(t *testing.T) { proveUnreadable(t, k) })
	t.Run("conflict", func(t *testing.T) { proveConflict(t, k) })
	t.Run("failed run is not applied", func(t *testing.T) { proveNotApplied(t, k) })
	t.Run("transfers", func(t *testing.T) { proveTransfers(t, k) })
}
