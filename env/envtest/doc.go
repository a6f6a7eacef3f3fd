// Package envtest checks execution environments, and decorators of them, against the contract of
// package env.
//
// One call runs the whole suite:
//
//	func TestContract(t *testing.T) {
//		envtest.Run(t, envtest.Options{
//			New: func(t *testing.T) env.Environment {
//				e, err := mybackend.Start(t.Context(), mybackend.Config{Dir: t.TempDir()})
//				if err != nil {
//					t.Fatal(err)
//				}
//				return e
//			},
//			Known: map[string]string{
//				"kill/setsid_escapee_dies_on_timeout": "this system has no way to find it",
//			},
//		})
//	}
//
// Every case is a subtest of its own, such as "exec/exit_codes", and depends on no other. The cases
// of one group share an environment, each working in a folder of its own, at the same time; cases
// that close an environment get a fresh one. Every failure begins with the sentence of the contract
// that was broken. Cases check effects, such as a process that is gone and bytes that are equal,
// and never how long something took.
//
// A decorator that changes nothing, such as one that logs, is checked by [CheckWrap] as well. An
// environment that refuses writes or commands by design is not for Run, which needs both.
//
// # Known differences
//
// An environment that cannot keep a sentence declares it in Options.Known, with a reason. A
// declared case that passes fails the run, and so does a declared case that does not exist, so that
// the list can only be true. This holds for promises that Info reports as absent, too: the suite
// does not read them as an excuse.
//
// # Skips
//
// The cases are driven from inside the environment by POSIX sh and a few usual tools. A case whose
// tool is missing is skipped with the reason. If the variable SANDBOXAGENT_REQUIRE, a
// comma-separated list, holds "envtest" or the name that Info gives as Backend, a missing tool
// fails the case instead. Cases that make no sense in the given environment, such as missing rights
// for root, are skipped in any event.
//
// With -short the largest data are smaller.
package envtest
