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
// Start starts the helper by a Plan, or without one. The helper first calls ReceivePlan and Enter.
// Enter applies the restrictions that a process can only apply to itself, verifies the others, and
// fails if the sandbox differs from the plan. Plan.Tidy removes the remains of a sandbox; if this
// process is killed, a second process, the tidier, removes them.
//
// Only Linux has a sandbox. Elsewhere Start starts helpers without one.
//
// This package makes Landlock's system calls itself, because landlock-lsm/go-landlock restricts all
// threads of a process. Here the first thread alone must be restricted before the program executes
// itself again, or processes started by different threads could not signal each other.
package sandbox
