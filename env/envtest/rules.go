package envtest

// The sentences of the contract, as failures quote them.
const (
	ruleNames       = "names are slash-separated; relative ones resolve against the working directory"
	ruleInvalidName = "an empty name, and a name with a NUL byte, is fs.ErrInvalid"
	ruleArgv        = "Argv is passed as it is; no shell is involved unless Argv names one"
	rulePath        = "a program without a slash is looked up in the PATH that the command will see"
	ruleStart       = "a command that could not be started is a *StartError; it certainly did not run"
	ruleUser        = "a command with User runs as that user, or it is not started"
	ruleDir         = "a command starts in Dir; a missing one is a *fs.PathError with Op \"chdir\""
	ruleVars        = "a process sees the base variables plus Command.Vars; of duplicates the last " +
		"wins"
	ruleStdin       = "stdin is empty unless Stdin is set"
	ruleStdinUnread = "a command that does not read its stdin is no error, and Exec does not wait " +
		"for the reader"
	ruleExit      = "a non-zero exit code is not an error; Result is the outcome of the command"
	ruleTimeout   = "a timeout is a field of Result, not an error"
	ruleCancel    = "a cancellation is an error that wraps ctx.Err and context.Cause"
	ruleReturns   = "Exec returns when the command exits, even if a descendant holds its pipes"
	ruleDelivered = "all bytes already written are delivered"
	ruleLiveOn    = "descendants of a command that ended normally live on, their output " +
		"discarded, until Close"
	ruleTreeDead = "after a timeout or a cancellation the whole process tree is dead before Exec " +
		"returns"
	ruleOthers    = "killing a command kills no other command's processes"
	ruleProcesses = "a tree of more than MaxProcesses is killed, and dead before Exec returns"
	ruleGrace     = "a timeout sends SIGTERM to the whole process tree, and SIGKILL GraceTime later"
	ruleInterrupt = "each value of Interrupt sends SIGINT to the process group of the command; Exec " +
		"does not wait for one, and stops receiving when it returns"
	ruleExact   = "stdout and stderr are separate; bytes are exact"
	ruleMemory  = "output is streamed to the caller's writers, in bounded memory"
	ruleWriters = "a writer is called by one goroutine at a time, and never after Exec has " +
		"returned"
	ruleWriterError = "an error of a writer stops delivery to it; the command runs on and Exec " +
		"returns the error"
	ruleOnce = "a command runs at most once"
	ruleTTY  = "a command with TTY has a new controlling terminal as its stdin, stdout and " +
		"stderr"
	ruleTTYSize = "a terminal has the given Size, 80 columns and 24 rows if that is zero, and " +
		"then the sizes from Resize"
	ruleTTYTyped  = "Stdin is typed into the terminal"
	ruleTTYEnd    = "when Stdin ends, or is nil, the terminal gets the end-of-file character"
	ruleTTYOutput = "all output of a command on a terminal goes to Stdout; Stderr must be nil"
	ruleTTYResize = "Exec stops receiving from Resize when it returns, and waits for nothing from it"
	ruleConfine   = "a command with Confine, and its descendants, change files only in Write, and " +
		"read in Hide only what is in Read and Write; an environment that cannot enforce it does not " +
		"start the command"
	ruleConfineTemp = "confined commands have a directory for temporary files, which those of an " +
		"equal Confinement share"
	ruleOpen      = "Open opens a regular file and follows symlinks"
	ruleSpecial   = "special files never block a read"
	rulePathError = "errors of files are *fs.PathError that wrap fs.ErrNotExist, fs.ErrPermission " +
		"and so on"
	ruleStat  = "Stat describes a file and follows symlinks"
	ruleLstat = "Lstat and ReadLink describe a symlink itself; ReadLink of another file is " +
		"fs.ErrInvalid"
	ruleReadDir = "ReadDir lists a directory, sorted by name; entries describe symlinks " +
		"themselves"
	ruleWrite   = "WriteFile replaces the content of the file by the bytes of the reader"
	ruleParents = "missing parents are created with mode 0o777 less the umask"
	ruleMode    = "WriteFile keeps the mode of an existing file; Mode is its exact mode " +
		"after the write"
	ruleLinks      = "WriteFile follows symlinks"
	ruleAtomic     = "a reader never sees half a file"
	ruleInPlace    = "where rename is impossible WriteFile writes in place and reports so"
	ruleWriteFails = "if the reader fails or ctx ends, the file is as before"
	ruleCondition  = "an unmet condition of a write is fs.ErrExist or ErrChanged, and the file is " +
		"as before"
	ruleRemove = "Remove removes a file, a symlink itself or an empty directory; a whole tree " +
		"only if requested"
	ruleCopyIn = "CopyIn unpacks a tar stream with modes, symlinks and empty directories; other " +
		"files stay"
	ruleOutside = "CopyIn writes nothing outside its directory; names that leave it, and devices, " +
		"are errors"
	ruleBadArchive = "CopyIn of a damaged archive is an error"
	ruleCopyOut    = "CopyOut packs names relative to dir in lexical order, symlinks as symlinks, " +
		"special files left out"
	ruleOutNames = "CopyOut takes names that exist and do not leave dir; a stream that ends " +
		"early is an error"
	ruleSearch     = "Walk, Glob and Grep return the same on every environment"
	ruleSearchEnds = "a search that is cancelled ends at once, with an error that wraps ctx.Err " +
		"and context.Cause"
	ruleReadFiles = "ReadFiles returns for each name the result of ReadFile, in order, and not more " +
		"than MaxReadFiles bytes in all"
	ruleFS         = "FS is a file system as io/fs defines it"
	ruleInfo       = "Info describes the environment and always returns the same"
	ruleSecrets    = "variables of the host that look like secrets do not reach a command by default"
	ruleConcurrent = "every method may be called concurrently"
	ruleClose      = "Close is idempotent and bounded"
	ruleCloseEnds  = "Close kills every process that the environment started; running calls return " +
		"fs.ErrClosed"
	ruleClosed = "after Close every method returns fs.ErrClosed"
)
