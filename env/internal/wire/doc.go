// Package wire is the protocol by which an environment is used over one duplex byte stream: its
// messages, frames and errors, and the stream as a net.Conn. Package client is the environment at
// one end, package server serves one at the other.
//
// # Connection
//
// The client sends one line of JSON, a [Hello], and its Start; the server responds with one line, a
// [Welcome], which may refuse the client. From then on the stream carries unencrypted HTTP/2 with
// the client in its usual role. Both sides must have the same [Version].
//
// A connection may end at any time. The server keeps its commands, and a client that reconnects
// with the same session resumes them. A later connection of a client replaces an earlier one, which
// may be dead without either side having noticed.
//
// # Responses
//
// A response has status 200 and consists of frames: a byte for the kind, four bytes for the length,
// big-endian, and the payload. The last frame is a [FrameEnd], which holds the error, if
// one, or a [FrameResult] for a command. A response without a last frame is incomplete, never a
// success. Another status means that the server does not understand the request. A list is sent as
// JSON arrays in frames of kind [FrameRecords], content in frames of kind [FrameData], and a single
// value is the Value of the last frame.
//
//	POST   /exec/ID?stdout=N&stderr=N     ExecRequest  output frames, ExecResult
//	DELETE /exec/ID                                    kills; the POST has the result
//	POST   /exec/ID/stdin?offset=N&end=1  bytes        StdinState, once they are read
//	POST   /exec/ID/resize                env.TTYSize
//	POST   /exec/ID/interrupt
//	GET    /file?name=…&offset=N                       a list of one FileInfo, data from N on
//	PUT    /file?name=…&mode=&new=1&sha256=  bytes     env.Written; mode: decimal fs.FileMode
//	DELETE /file?name=…&recursive=1
//	GET    /stat?name=…                                FileInfo
//	GET    /lstat?name=…                               FileInfo
//	GET    /link?name=…                                Text, the target of a symlink
//	GET    /dir?name=…                                 []FileInfo
//	POST   /read                          ReadRequest  for each file a list of one ReadHeader, data
//	POST   /tree?dir=…                    tar
//	POST   /pack                          PackRequest  tar as data
//	POST   /walk                          WalkRequest  []WalkEntry
//	POST   /glob                          GlobRequest  []WalkEntry
//	POST   /grep                          GrepRequest  []GrepMatch, search.GrepStats
//	GET    /op/ID                                      ChangeOutcome of the change ID
//	POST   /kill, /close
//
// # Commands
//
// The client chooses the id of a command. The first POST with an id starts the command; a later one
// resumes its output at the given offsets. So a client may repeat a POST of unknown fate, and the
// command still runs once. A DELETE before the POST keeps the command from starting. Of two
// responses for one command the later takes over and the earlier is cut off. An offset that the
// server does not hold has status 409; a command that it has forgotten is env.ErrUnknownOutcome.
//
// Output needs no acknowledgements. HTTP/2 gives a sender credit only for bytes that its receiver
// has read, and no more than one [Window]. A ring that holds the last window of the bytes passed to
// HTTP/2, and a little more for the buffers of both ends, therefore holds every byte that a client
// can lack. When the ring is full the command blocks in its write, also while no client is
// connected, so no byte is lost.
//
// A command belongs to the server, not to the connection or the client that started it, and runs on
// without them. A server that ends with its last client counts them.
//
// Stdin goes in pieces of at most one window. The response to a piece comes when the command has
// read it. A piece at an offset that the command has passed is complete already, so pieces may be
// repeated. A piece that overtakes the POST of its command waits for it; after a while the response
// is that the command is unknown, and the client repeats the piece. Of two pieces at once the later
// takes over.
//
// # Changes
//
// A request that changes files carries an id in the header [ChangeHeader]. The server retains the
// outcomes of the last such requests, so that a client can request the outcome after a lost
// connection. The response to a repeated id is the retained outcome. A change whose outcome is
// requested before it starts never starts. One that the server has forgotten is
// env.ErrUnknownOutcome, and is not made.
//
// # Trust
//
// A server bounds the number of commands. Each has at most two rings, which take memory as output
// comes. The rings of commands that have ended are bounded together: beyond that the results of the
// oldest become env.ErrUnknownOutcome.
//
// Neither side trusts the other: every length and every count is bounded before memory is taken for
// it. A client that detects a violation of the protocol closes the connection and returns
// env.ErrProtocol from then on.
package wire
