// Package integration holds the tests that use the product from outside: the definition of done,
// scenarios on real services and repositories, and the rules that the repository itself must keep.
package integration
