package sandboxd

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
)

// Exit codes of the helper. Signal n gives 128+n.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
	// exitGone: no process listens on the socket; the helper has ended.
	exitGone = 3
)

const (
	// defaultTTL is how long the helper lives without a client.
	defaultTTL = 60 * time.Second
	// memoryLimit is the soft limit of the heap. It counts against the limit of a container.
	memoryLimit = 48 << 20
	gcPercent   = 50
	// maxParallel bounds the threads that run Go code at once. A thread that the system refuses
	// would end the process.
	maxParallel = 4
)

// usageText is the help of the program sandboxd.
const usageText = `usage: sandboxd serve [--socket PATH|@NAME [--ttl DURATION] [--no-stdio]]
                      [--dir DIR] [--sandbox JSON | --confined [--nested]]
       sandboxd dial --socket PATH|@NAME [--pid N] [--wait DURATION]
       sandboxd install FILE [DIR...]
       sandboxd tidy
       sandboxd probe
       sandboxd reach [ADDRESS...]
`

// Run runs the program sandboxd with the arguments after the program's name and returns the exit
// code. It takes over the process: standard streams, signals, limits and protection. The caller has
// started nothing before, and exits afterwards. Main calls it for programs that are more than the
// helper.
func Run(args []string) int {
	if err := protect(); err != nil {
		return fail(err)
	}
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), maxParallel))
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	if len(args) > 0 {
		switch args[0] {
		case "help", "-h", "-help", "--help":
			return help()
		case "serve":
			return mainServe(args[1:])
		case "dial":
			return mainDial(args[1:])
		case "install":
			return mainInstall(args[1:])
		case "tidy":
			return mainTidy(args[1:])
		case "probe":
			return mainProbe(args[1:])
		case "reach":
			return mainReach(args[1:])
		}
	}
	fmt.Fprint(os.Stderr, usageText)
	return exitUsage
}

func mainServe(args []string) int {
	flags := newFlags("serve")
	socket := flags.String("socket", "", "serve later clients on this unix socket")
	ttl := flags.Duration("ttl", defaultTTL, "how long to wait for a client to come back")
	noStdio := flags.Bool("no-stdio", false, "serve on the socket only")
	dir := flags.String("dir", "", "remove this directory in the end")
	sandboxFlag := flags.String("sandbox", "", "have another helper serve, in this sandbox")
	confined := flags.Bool("confined", false, "enter the sandbox of the plan in a descriptor")
	nested := flags.Bool("nested", false, "report the start to the parent helper; serve its socket")
	if err := parse(flags, args); err != nil {
		return usage(err)
	}
	if err := checkSocket(*socket, runtime.GOOS); err != nil {
		return usage(err)
	}
	if *noStdio && (*socket == "" || *sandboxFlag != "" || *confined) {
		return usage(errors.New("--no-stdio: needs --socket, and excludes --sandbox and --confined"))
	}
	if *ttl <= 0 {
		return usage(fmt.Errorf("--ttl %s: must be more than 0", *ttl))
	}
	if *dir != "" && (!filepath.IsAbs(*dir) || filepath.Dir(*dir) == *dir) {
		return usage(fmt.Errorf("--dir %s: must be an absolute path", *dir))
	}
	config := serveConfig{
		socket:  *socket,
		ttl:     *ttl,
		noStdio: *noStdio,
		dir:     *dir,
		program: os.Args[1:max(1, len(os.Args)-len(args)-1)],
	}
	code, orphans, err := config.serve(*sandboxFlag, *confined, *nested)
	if err != nil {
		code = fail(err)
	}
	if orphans {
		return code // the directory locates them
	}
	if *dir != "" {
		if err := removeDir(*dir); err != nil {
			fmt.Fprintln(os.Stderr, "sandboxd:", err)
		}
	}
	return code
}

// serveConfig is the configuration of the command serve.
type serveConfig struct {
	socket string
	ttl    time.Duration
	// noStdio means that the first client connects to the socket as well.
	noStdio bool
	dir     string
	// program are arguments of this program before those of the helper.
	program []string
}

// serve serves until the end, or starts another helper that does so in a sandbox. It returns the
// exit code, and whether commands may still run.
func (s serveConfig) serve(
	sandboxText string, confined, nested bool,
) (code int, orphans bool, err error) {
	var in setup
	if sandboxText != "" {
		var within *sandboxedHelper
		if within, in, err = startSandboxed(sandboxText, s); err != nil {
			return 0, false, err
		} else if within != nil {
			code, orphans = within.wait()
			return code, orphans, nil
		}
	}
	if confined {
		plan, err := sandbox.ReceivePlan()
		if err == nil {
			in.plan, err = &plan, sandbox.Enter(plan)
		}
		if err != nil {
			return 0, false, err
		}
	}
	if s.noStdio {
		code, err := newHelperServer(s.socket, s.ttl, in).runSocket()
		return code, false, err
	}
	stream, err := takeStdio()
	if err != nil {
		return 0, false, err
	}
	if nested {
		if err := in.joinParent(s.socket != ""); err != nil {
			return 0, false, err
		}
	}
	return newHelperServer(s.socket, s.ttl, in).run(stream), false, nil
}

// mainTidy tidies up after a sandbox whose processes have all been killed.
func mainTidy(args []string) int {
	if err := parse(newFlags("tidy"), args); err != nil {
		return usage(err)
	}
	if err := sandbox.RunTidier(os.Stdin, sandbox.DeathFile()); err != nil {
		return fail(err)
	}
	return exitOK
}

// removeDir removes the helper's directory, and its parent if that is empty then.
func removeDir(name string) error {
	err := os.RemoveAll(name)
	_ = os.Remove(filepath.Dir(name)) // others may be in it
	return err
}

func mainDial(args []string) int {
	flags := newFlags("dial")
	socket := flags.String("socket", "", "the unix socket to connect to")
	pid := flags.Int("pid", 0, "the process that must listen on the socket")
	wait := flags.Duration("wait", 0, "how long to wait for a process that listens")
	if err := parse(flags, args); err != nil {
		return usage(err)
	}
	if *socket == "" {
		return usage(errors.New("--socket is missing"))
	}
	if err := checkSocket(*socket, runtime.GOOS); err != nil {
		return usage(err)
	}
	if *pid < 0 {
		return usage(fmt.Errorf("--pid %d: must be the number of a process", *pid))
	}
	if err := dial(*socket, *pid, *wait); err != nil {
		code := fail(err)
		if isGone(err) {
			code = exitGone
		}
		return code
	}
	return exitOK
}

// checkSocket rejects names that are invalid on the system goos.
func checkSocket(name, goos string) error {
	switch {
	case !isAbstract(name):
		return nil
	case goos != "linux":
		return fmt.Errorf(
			"--socket %s: sockets without a file on %s: %w", name, goos, errors.ErrUnsupported,
		)
	case name == "@":
		return errors.New("--socket @: a name is missing")
	}
	return nil
}

// isAbstract reports whether a socket has a name, but no file.
func isAbstract(socket string) bool { return strings.HasPrefix(socket, "@") }

func newFlags(name string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	return flags
}

func parse(flags *flag.FlagSet, args []string) error {
	err := flags.Parse(args)
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unknown argument %q", flags.Arg(0))
	}
	return err
}

func usage(err error) int {
	if errors.Is(err, flag.ErrHelp) {
		return help()
	}
	fmt.Fprintln(os.Stderr, "sandboxd:", err)
	return exitUsage
}

// help prints the usage.
func help() int {
	if _, err := fmt.Print(usageText); err != nil {
		return fail(err)
	}
	return exitOK
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "sandboxd:", err)
	var caught *signalError
	if errors.As(err, &caught) {
		return signalCode(caught.signal)
	}
	return exitError
}

// signalError reports a signal that ended the start of a helper.
type signalError struct{ signal os.Signal }

func (e *signalError) Error() string {
	return fmt.Sprintf("%s before the sandbox was ready", e.signal)
}

// signalCode returns the exit code for a signal.
func signalCode(s os.Signal) int {
	if number, ok := s.(syscall.Signal); ok {
		return 128 + int(number)
	}
	return exitError
}
