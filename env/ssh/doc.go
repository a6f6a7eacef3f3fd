// Package ssh runs commands on a host over SSH, in place: with the rights of the user who logs in there, in that user's
// folders. It needs nothing on the host but an SSH server and a POSIX shell.
//
// A helper, the program sandboxd, is put into the user's cache directory on the host, under a name that holds its digest,
// and is verified before each start. It is the parent of all commands, and outlives the connection: when that is lost,
// commands go on, the client connects again, and nothing of their output is missing or there twice. When no client has
// come back for Config.TTL, the helper kills what it has started, removes its folder, and ends. Where no helper may run,
// or there is none for the host's processor, everything goes through the shell of the host; then the end of the
// connection is the end of the environment.
//
// # What is sent
//
// The client forwards no agent, no port and no variable of its own. Commands see those of the variables of a login on the
// host that env.VarsCore names, and those of Config.Vars.
//
// # Connections
//
// The environments of one Host share its connection. One more is made when the server lets no more sessions in, which
// for OpenSSH are ten, and it is closed when nobody uses it. A server that is silent for twenty seconds counts as lost.
//
// # Files without the helper
//
// Large content goes by SFTP into a file beside its target. What puts it in the target's place is not SFTP's rename, which
// needs an extension to replace anything, but the host's own, by its shell, in one round trip with the looks at links,
// digest and mode: so it is the same with each server, and without SFTP.
//
// Without Config.Sandbox there is no isolation: a command can do what the user can do. Commands of an environment can kill its
// helper then, and with Landlock. With a sandbox the helper on the host starts another one in it, which serves.
package ssh
