// Package sandboxd is the helper: a process that serves one environment over a byte stream and
// leaves nothing behind, whatever happens to its client.
//
//	sandboxd serve                                  serve on stdin and stdout
//	sandboxd serve --socket PATH|@NAME [--ttl 60s]  the same, and later clients on a unix socket
//	sandboxd serve --socket @NAME --no-stdio        serve on the socket only
//	sandboxd dial --socket PATH|@NAME [--pid N] [--wait DURATION]
//	                                                connect stdin and stdout to that socket
//	sandboxd install FILE [DIR...]                  copy this program to FILE, and make directories
//	sandboxd serve --sandbox JSON …                 start another helper in a sandbox
//	sandboxd serve --confined [--nested]            the helper in the sandbox
//	sandboxd tidy                                   clean up after the end of a sandbox
//	sandboxd probe                                  report a command's access; see package verify
//	sandboxd reach [ADDRESS...]                     print one that accepts a connection
//
// A program of another module is its own helper: it calls [Main] first, and passes [Self] to the
// backends:
//
//	func main() {
//		sandboxd.Main()
//		…
//		e, err := local.Supervised(ctx, local.Config{Dir: dir}, sandboxd.Self())
//	}
//
// With --dir DIR, serve removes that directory in the end, and its parent if that is empty.
//
// Without a socket, the end of the stream ends the helper and kills everything that it started.
// With one, a client may reconnect; the helper ends when it had none for its TTL. A client that
// closes the environment ends it at once.
//
// Exit codes are 0 for an orderly end, 1 for an error, which stderr reports, 2 for wrong usage, 3
// if no process listens where dial connects, and 128+n for signal n.
//
// # The socket
//
// The Hello of the first client, on stdin, sets the token that all later clients need. With
// --no-stdio it comes by the socket, and all clients must be processes of the helper's pid
// namespace; the TTL runs from the start. It is for a helper that starts alone in a container,
// whose stdout would be logged. Token and
// variables are never in arguments or variables of a process. The socket has mode 0600 in a
// directory of mode 0700. Connections from users other than its own and root are closed, and so are
// those without the token in time. A flood of those excludes no client: above a limit, processes
// that have failed before are dropped first, and dial sends the token as soon as it is connected.
//
// Commands of the helper's user can remove the socket, which keeps clients from reconnecting, and
// can listen under its name. With --pid, dial sends nothing unless the process of that number
// listens; the kernel reports it, on Linux only. A socket @NAME, on Linux, has no file: no process
// can remove or replace it while the helper lives. Every process of the same network namespace, of
// any user, can connect to it, and the first to take the name has it. It suits a helper that is PID
// 1 of its own namespaces, with --pid 1; one that shares a network is better off with a socket in a
// directory.
//
// # Protection
//
// Commands usually run as the helper's own user. It is not dumpable, so they cannot read its
// memory, its descriptors or its stream, nor trace it. As PID 1 of a pid namespace it cannot be
// killed or stopped by commands either: it forwards signals to the commands, and a system call
// filter, which commands inherit, refuses limits and priorities of other processes, forged faults,
// and the signals 32 to 34, which belong to C libraries and are not caught. The filter needs
// no_new_privs or CAP_SYS_ADMIN. Without it Info guarantees nothing against hostile commands, nor
// does it against root, also without capabilities, to whom files in /proc belong. Elsewhere a
// command can kill the helper, and Info reports best effort.
//
// A process that enters the namespace of PID 1 from outside, for example by the exec command of a
// container's runtime, is not a command, nor are its descendants: its parent is in another
// namespace. It is spared when everything is killed, and ends with the helper. Its orphans become
// children of PID 1, and are not spared.
//
// # Resources
//
// A full limit on processes must not end the helper, so it starts its threads in advance, lets
// fewer file operations than that block, and uses at most four processors. Its heap has a limit.
package sandboxd
