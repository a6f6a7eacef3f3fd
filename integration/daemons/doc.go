// Package daemons starts the real services that tests need: a private dockerd with images that this
// package makes, so that tests do not depend on a registry, and SSH servers.
//
// The daemon shares nothing with one that the machine runs: it has its own socket, data,
// containerd, bridge, control group and mount namespace, changes no firewall rule, and reads no
// configuration of the machine. Several may run at once. Stop removes everything and fails if
// something is left; the next daemon removes what a killed test run has left.
//
// Most tests share one daemon: the program in integration/withdaemons starts it, runs a command
// such as go test, and passes its address in SANDBOXAGENT_TEST_DOCKER, where DockerHost finds it.
// Tests that break their daemon start one with NewDocker.
//
// NewRegistry starts a registry of images that refuses and fails on command, and NewSSHD an OpenSSH
// or dropbear server for the user of the tests, or for an account that only that server has.
package daemons
