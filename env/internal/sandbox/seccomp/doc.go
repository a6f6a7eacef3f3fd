// Package seccomp builds and installs filters of system calls for Linux. A filter refuses calls by
// rules, which apply to each ABI that the machine runs: on amd64 and arm64 also to programs of 32
// bits, whose calls have other numbers. Calls of unknown ABIs fail with ENOSYS.
//
// It is not elastic/go-seccomp-bpf, whose filters let every call of a second ABI pass (a 32-bit
// program on amd64 would be unfiltered), and compare all 64 bits of arguments of which the kernel
// reads 32, so that a set upper bit evades a rule. It would also exceed the helper's size limit.
package seccomp
