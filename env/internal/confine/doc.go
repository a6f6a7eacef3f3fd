// Package confine keeps a program, and everything that it starts, away from what is not its business on this machine: it
// changes no file outside a few folders, does not see where secrets are kept, has no network unless it was given one, and
// gains no rights.
//
// A Policy says what is wanted. A Plan is what that means on this machine, for one of the mechanisms that can enforce it:
// bubblewrap, which gives the program namespaces of its own, or Landlock with a filter of system calls, which needs no
// namespaces, and does less: see Plan.Guarantees. Plan.Command starts the program, and the program calls Enter before it
// does anything else. What a mechanism is known not to have done makes Enter fail.
package confine
