// Package wire serves an environment over one duplex byte stream, and is an environment over one. [Server] answers with
// the methods of any env.Environment; [Client] implements env.Environment with what it answers.
//
// # Connection
//
// The client sends one line of JSON, a [Hello], and the bytes of its Start behind it; the server answers with one line, a
// [Welcome]; from then on the stream carries unencrypted HTTP/2 with the client in its usual role. A server refuses in its
// Welcome. A connection may end at any time; the server keeps what runs, and a client that connects again and gives the
// same session goes on where it was. A later connection of the same client replaces the one before, which may not have
// noticed yet that it is dead.
//
// # Answers
//
// Each answer has status 200 and consists of frames: a byte for the kind, four bytes for the length, big-endian, and the
// payload. The last frame is of kind frameEnd and tells whether there was an error, or of kind frameResult for a
// command; whatever ends without one is incomplete, never a success. Another status means that the other side does not
// understand this protocol. A list is sent as JSON arrays in frames of kind frameRecords, content in frames of kind
// frameData, and a single value is the Value of the last frame.
//
//	POST   /exec/ID?stdout=N&stderr=N  execRequest  output frames, execResult
//	DELETE /exec/ID                                 kills; the answer above tells how it ended
//	POST   /exec/ID/stdin?offset=N&end=1  bytes     stdinAnswer, once they are taken
//	POST   /exec/ID/resize             TTYSize
//	GET    /file?name=…&offset=N                    a list of one fileInfo, data from N on
//	PUT    /file?name=…&mode=&new=1&sha256=  bytes  env.Written; mode is a fs.FileMode in decimal
//	DELETE /file?name=…&recursive=1
//	GET    /stat?name=…                             fileInfo
//	GET    /dir?name=…                              []fileInfo
//	POST   /read                       readRequest  several files: a list of one readHeader, data, …
//	POST   /tree?dir=…                 tar
//	POST   /pack                       packRequest  tar as data
//	POST   /walk                       walkRequest  []walkEntry
//	POST   /glob                       globRequest  []walkEntry
//	POST   /grep                       grepRequest  []grepMatch, env.GrepStats
//	GET    /op/ID                                   opAnswer: what became of the change ID
//	POST   /kill, /close
//
// # Commands
//
// The client chooses the id of a command. The first POST with an id starts the command; a later one resumes its
// output at the given offsets, so that a client may repeat a POST whose fate it does not know and the command still runs
// once. A DELETE that comes before its POST keeps the command from starting. Of two answers for one command the later
// takes over, and the earlier is cut off. An offset that the server does not hold has status 409; a command that it does
// not know any more is env.ErrUnknownOutcome, as the error of a frameEnd.
//
// Output needs no acknowledgements. HTTP/2 gives a sender credit only for what its receiver has read, and no more than
// one stream window. A ring that holds the last window of what was handed to HTTP/2, and a little more for what is in the
// buffers of both ends, therefore holds everything that a client can lack. When the ring is full the command blocks in
// its write, also while no client is connected, so that there is never a gap. The size of the ring follows from that of
// the window, [Window].
//
// A command belongs to the server and not to the connection, nor to the client, that started it: it runs on when they are
// gone. Who wants it to end with them watches the number of clients, see [ServerConfig].
//
// Standard input goes in pieces of at most one window, each answered when the command has taken it. A piece with an
// offset that the server has passed is taken already, which makes pieces repeatable. A piece that overtakes the POST of
// its command waits for it; if that takes long, it is answered that the command is unknown, and the client repeats it. Of
// two pieces at once the later takes over.
//
// # Changes
//
// A request that changes files carries an id in the header [opHeader]. The server remembers what became of the last
// such requests, so that a client whose connection broke can ask instead of guessing. A request with an id that it
// remembers is answered from memory. A change that a client asks about before it has begun does not begin any more. One
// that the server has forgotten is env.ErrUnknownOutcome, as the error of a frameEnd, and is not made.
//
// # Trust
//
// A server bounds the number of commands, and each of them holds two rings at most, whose memory is taken as output comes.
// What ended commands hold is bounded as a whole: beyond that the oldest become env.ErrUnknownOutcome.
//
// Neither side believes the other: every length and every count is bounded before memory is taken for it. A client that
// meets a violation of this protocol drops the connection and gives env.ErrProtocol from then on.
package wire
