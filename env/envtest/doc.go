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
// Every case is a subtest, such as "exec/exit_codes", and depends on no other. The cases share
// an environment and run concurrently, each in its own directory; cases that close an environment
// get a fresh one. Every failure starts with the violated sentence of the contract.
// Cases check effects, such as the death of a process or the equality of bytes, never durations.
//
// [CheckWrap] checks a decorator that only observes, such as a logger. Run needs an environment
// that runs commands and writes files.
//
// # Known differences
//
// An environment that violates a sentence declares it in Options.Known, with a reason. A declared
// case that passes fails the run, and so does one that does not exist, so that the list stays true.
// A guarantee that Info reports as absent excuses no case.
//
// # Skips
//
// The cases use POSIX sh and a few usual tools of the environment. A case whose tool is missing is
// skipped with the reason. If the variable SANDBOXAGENT_REQUIRE, a comma-separated list, contains
// "envtest" or Info.Backend, a missing tool fails the case instead. Cases that cannot apply to the
// environment, such as missing permissions of root, are always skipped.
//
// With -short the cases use less data.
package envtest
