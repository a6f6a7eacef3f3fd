// Package daemons starts the real services that tests need: a private dockerd with images that this
// package makes, so that tests do not depend on a registry, and SSH servers.
//
// The daemon shares nothing with a daemon that the machine runs: it has a separate socket, data,
// containerd, bridge, control group and mount namespace, changes no firewall rule, and reads no
// configuration of the machine. Several may run at once. Stop removes everything and fails if
// something is left; the next daemon removes the leftovers of a killed test run.
//
// Most tests share one daemon: the program in integration/withdaemons starts it, runs a command
// such as go test, and passes its address in SANDBOXAGENT_TEST_DOCKER, where DockerHost finds it.
// Tests that break their daemon start one with NewDocker.
//
// NewRegistry starts a registry of images that refuses and fails on command, and NewSSHD an OpenSSH
// or dropbear server for the user of the tests, or for an account that only that server has.
package daemons
