// Package daemons starts the real services that tests need: a private dockerd, with images that are
// made here, because tests do not depend on a registry.
//
// The daemon shares nothing with one that the machine runs: it has a socket, data, containerd,
// bridge, control group and mount namespace of its own, changes no firewall rule, and reads no
// configuration of the machine. Several may run at once. Stop removes what it made and fails if
// something is left; what a killed test run has left is removed when the next one starts a daemon.
//
// Most tests share one daemon: the program in integration/withdaemons starts it, runs a command
// such as go test, and passes its address in SANDBOXAGENT_TEST_DOCKER, where DockerHost finds it.
// Tests that break their daemon start one with NewDocker.
//
// NewRegistry starts a registry of images that can be told to refuse and to fail, and NewSSHD an
// OpenSSH or dropbear server that lets in the user of the tests, or one that only that server
// knows.
package daemons
