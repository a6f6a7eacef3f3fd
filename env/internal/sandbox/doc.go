// Package sandbox starts a helper inside a sandbox that the kernel enforces: the helper, and every
// process that it starts, can change only a few directories, cannot read the usual files of
// secrets, has no network unless the policy allows it, and cannot gain privileges.
//
// Choose turns a policy into a Plan for each mechanism of this machine, the
// stronger one first, and calls a StartFunc until a helper runs in a sandbox that enforces enough:
//
//   - Bubblewrap gives the helper its own namespaces and mounts. It needs user namespaces.
//   - Landlock, with a filter of system calls, needs none, and enforces less: see Plan.Guarantees.
//
// Start starts the helper by a Plan, or without one. The helper calls ReceivePlan and Enter before
// anything else. Enter applies what can only be applied from inside, verifies the rest, and fails
// where the sandbox is not as planned. Plan.Tidy removes what a sandbox leaves; if this process is
// killed, the tidier, a second process, does so.
//
// Only Linux has a sandbox. Elsewhere Start starts helpers without one.
//
// Landlock's system calls are made here and not by landlock-lsm/go-landlock, which restricts all
// threads of a process. Here the first thread alone must be restricted before the program executes
// itself again, or processes started by different threads could not signal each other.
package sandbox
