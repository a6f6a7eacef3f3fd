// Package seccomp builds filters of system calls for Linux and installs them. A filter refuses calls by rules, the same
// ones for every kind of program that the system runs: on amd64 and arm64 also those of 32 bits, whose calls have other
// numbers. Calls of a kind that is not known are refused as missing.
package seccomp
