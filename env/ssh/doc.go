// Package ssh opens environments on a host over SSH. Commands run on the host itself, with the
// rights and the files of the user who logs in. The host needs Linux, an SSH server and a POSIX
// shell.
//
// Connect logs in; the environments of one Host share its connection. Host.Open copies the helper,
// the program sandboxd, into the user's cache directory, under a name with its digest, which is
// verified before each start. The helper starts all commands and outlives the connection: commands
// continue, the client reconnects, and output resumes where it stopped. A helper without a client
// for Config.TTL kills everything that it started and exits.
//
// The client forwards no agent, port or variable. Commands see those variables of the login that
// vars.CoreNames lists, and those of Config.Vars. Without Config.Sandbox nothing isolates them, and
// they can kill their helper; with a sandbox the helper runs a second one in it, which serves.
//
// Login is by key only. Settings come from the ssh_config, as "ssh -G" prints it.
package ssh
