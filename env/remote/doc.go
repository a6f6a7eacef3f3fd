// Package remote opens an environment over a byte stream: a helper, the program sandboxd, serves
// the environment at one end of the stream, and [Open] is the client at the other. The backends
// docker and ssh add only the creation of a container and the login; other backends can do the
// same.
//
// # Writing a backend
//
// The configuration of a backend embeds [Options], which Options.Complete validates. Then a backend
//
//  1. creates the sandbox, and labels it with Options.Session for later listing;
//  2. delivers the helper that Options.Helper.Resolve returns for the platform of the sandbox;
//  3. starts Program.Serve in the sandbox, and passes stdin and stdout of that process to [Open] as
//     Config.Stream;
//  4. opens more streams in Config.Dial, by Program.Dial in another process of the sandbox;
//  5. releases the sandbox in Config.Close.
//
// The client calls Config.Dial when it has lost a stream, and resumes commands and files where they
// stopped. An error that wraps env.ErrGone ends the environment, such as for exit code [ExitGone]
// of Program.Dial, or for a sandbox that does not exist any more; after any other it tries again.
//
// A backend without a way to a second stream leaves Config.Dial nil: the loss of the stream ends
// the environment. The example runs a helper in bubblewrap in this way.
//
// The helper kills everything that it started and exits when its stream ends, or, with a socket,
// when it has had no client for Options.TTL. So nothing survives a client that is killed, provided
// that the sandbox ends with the helper. CollectOptions.Collect removes sandboxes whose client died
// before their helper ran.
//
// Another process can use a running environment: Environment.Ticket returns the argument of
// [Attach], and Environment.Leave disconnects without ending it.
//
// # Testing
//
// Package envtest has the cases that every environment has to pass.
package remote
