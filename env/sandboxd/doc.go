// Package sandboxd is the helper: a process that exists for one environment, serves it over a byte stream, and leaves
// nothing behind, whatever happens to its client.
//
//	sandboxd serve                                     serves its standard input and output
//	sandboxd serve --socket PATH|@NAME [--ttl 60s]     the same, and later clients on a unix socket
//	sandboxd dial --socket PATH|@NAME [--pid N]        connects its standard input and output to that socket
//	sandboxd serve --sandbox JSON …                    has another helper serve, in a sandbox
//	sandboxd serve --confined [--inside]               that one, by a plan that a descriptor has
//	sandboxd tidy                                      removes what a sandbox leaves, once all others have been killed
//	sandboxd probe                                     tells what a command sees of the place; see package verify
//
// With --folder DIR, serve removes that folder in the end, and the one around it if nothing else is in that.
//
// Where a stream is all there is, its end is the end: everything that was started is killed at once. With a socket, a
// client may come back; the helper ends when it has had none for the time to live. A client that closes the environment
// ends it at once.
//
// Exit codes are 0 for an end in order, 1 for an error, which standard error tells, 2 for wrong usage, 3 if nobody listens
// where dial was to connect, and 128+n for signal n.
//
// # The socket
//
// The first client is on standard input and output, and its Hello brings the token, without which nobody else is let
// in. Token and variables are never in arguments or variables of a process. The socket has mode 0600 in a folder of mode
// 0700, connections from other users but root are dropped, and so is who does not say the token in time. A flood of those
// keeps nobody out: where they are too many, processes that have failed before go first, and dial says the token as soon
// as it is connected.
//
// Commands that run as the helper's user can remove a socket in a folder, which keeps clients from coming back, and can
// listen in its place. With --pid, dial says nothing unless the helper of that number listens; the number is told by the
// kernel, on Linux only. A socket @NAME, on Linux, has no file: nobody can remove or replace it while the helper lives.
// Every process of the same network namespace can knock there, of whatever user, and whoever comes first has the name.
// So it is for a helper that is process 1 of namespaces of its own, which clients reach with --pid 1; one that shares a
// network with others is better off with a socket in a folder.
//
// # Protection
//
// Commands usually run as the helper's own user. It is not dumpable, so that they cannot read its memory, its
// descriptors or its stream, nor trace it. As process 1 of a pid namespace it cannot be killed or stopped from inside
// either, signals that end other processes are passed on to the commands, and a system call filter, which commands
// inherit, refuses what would reach it by a side way: limits and priorities of other processes, forged faults, and the signals 32 to 34,
// which are those of C libraries and not caught.
// Installing the filter needs no_new_privs or CAP_SYS_ADMIN; without it Info promises nothing for hostile commands, and
// neither does it for those of root, even of root without capabilities, whom files in /proc belong to. Elsewhere a command
// can simply kill the helper, and Info says best effort.
//
// Whoever enters the namespace of process 1 from outside is not a command, and neither are its descendants: a process
// whose parent is in another namespace, such as what the exec command of a container's runtime starts. It is spared when
// everything is killed, and ends with the helper. An orphan that it leaves falls to process 1, like those of commands,
// and is spared no longer.
//
// # Resources
//
// A full limit on processes must not end the helper, so it starts the threads that it can need in advance, lets fewer file
// operations than that block, and runs on no more than four processors. Its heap has a limit.
package sandboxd
