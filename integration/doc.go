// Package integration holds the tests that look at the product from outside: the definition of
// done, runs on real repositories, and the rules that the repository itself must keep.
package integration
