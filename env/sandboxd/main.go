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
	"time"

	"github.com/sandboxagent/sandboxagent/env/internal/sandbox"
)

// Exit codes of the helper. A signal n that ends it gives 128+n.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
	// exitGone says that nobody listens on the socket: the helper that did has ended.
	exitGone = 3
)

const (
	// defaultTTL is how long the helper waits for a client to come back.
	defaultTTL = 60 * time.Second
	// memoryLimit is what the helper's memory should stay below; it counts against the limit of a container.
	memoryLimit = 48 << 20
	gcPercent   = 50
	// maxParallel is how many threads run at once. Each needs a thread, and a thread that the system refuses would end the
	// process; one that commands have to share a machine with needs no more.
	maxParallel = 4
)

// Main is the whole of the program sandboxd: it runs with the arguments behind the program's name and returns the exit
// code. It takes over the process: its standard streams, its signals, its limits and its protection. A program that
// calls it does nothing else, and has started nothing before.
func Main(args []string) int {
	if err := protect(); err != nil {
		return fail(err)
	}
	runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), maxParallel))
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	if len(args) > 0 {
		switch args[0] {
		case "serve":
			return mainServe(args[1:])
		case "dial":
			return mainDial(args[1:])
		case "tidy":
			return mainTidy(args[1:])
		case "probe":
			return mainProbe(args[1:])
		}
	}
	fmt.Fprintln(os.Stderr, "usage: sandboxd serve [--socket PATH|@NAME [--ttl DURATION]] [--folder DIR] [--sandbox JSON | --confined [--inside]] | sandboxd dial --socket PATH|@NAME [--pid N] | sandboxd tidy | sandboxd probe")
	return exitUsage
}

func mainServe(args []string) int {
	flags := newFlags("serve")
	socket := flags.String("socket", "", "serve later clients on this unix socket")
	ttl := flags.Duration("ttl", defaultTTL, "how long to wait for a client to come back")
	folder := flags.String("folder", "", "remove this folder in the end")
	sandboxFlag := flags.String("sandbox", "", "have another helper serve, in this sandbox")
	confined := flags.Bool("confined", false, "enter the confinement that a descriptor tells of")
	inside := flags.Bool("inside", false, "tell the helper outside of the confinement of the start, and take the socket from it")
	if err := parse(flags, args); err != nil {
		return usage(err)
	}
	if err := checkSocket(*socket, runtime.GOOS); err != nil {
		return usage(err)
	}
	if *ttl <= 0 {
		return usage(fmt.Errorf("--ttl %s: want more than 0", *ttl))
	}
	if *folder != "" && (!filepath.IsAbs(*folder) || filepath.Dir(*folder) == *folder) {
		return usage(fmt.Errorf("--folder %s: want the absolute name of a folder", *folder))
	}
	around := serving{socket: *socket, ttl: *ttl, folder: *folder, program: os.Args[1:max(1, len(os.Args)-len(args)-1)]}
	code, orphans, err := around.serve(*sandboxFlag, *confined, *inside)
	if err != nil {
		code = fail(err)
	}
	if orphans {
		return code // by its folder they are found
	}
	if *folder != "" {
		if err := removeFolder(*folder); err != nil {
			fmt.Fprintln(os.Stderr, "sandboxd:", err)
		}
	}
	return code
}

// serving is how a helper serves.
type serving struct {
	socket string
	ttl    time.Duration
	folder string
	// program are arguments of this program that come before those of the helper.
	program []string
}

// serve serves until the end, or has another helper do it in a sandbox, and returns the exit code, and whether commands may
// still run.
func (s serving) serve(want string, confined, inside bool) (code int, orphans bool, err error) {
	var in surroundings
	if want != "" {
		var within *boxed
		if within, in, err = box(want, s); err != nil {
			return 0, false, err
		} else if within != nil {
			code, orphans = within.wait()
			return code, orphans, nil
		}
	}
	if confined {
		plan, err := sandbox.ReceivePlan()
		if err == nil {
			in.confinement, err = &plan, sandbox.Enter(plan)
		}
		if err != nil {
			return 0, false, err
		}
	}
	stream, err := takeStdio()
	if err != nil {
		return 0, false, err
	}
	if inside {
		if err := in.arrive(s.socket != ""); err != nil {
			return 0, false, err
		}
	}
	return newDaemon(s.socket, s.ttl, in).run(stream), false, nil
}

// mainTidy tidies up after a sandbox whose processes have all been killed.
func mainTidy(args []string) int {
	if err := parse(newFlags("tidy"), args); err != nil {
		return usage(err)
	}
	if err := sandbox.RunTidier(os.Stdin); err != nil {
		return fail(err)
	}
	return exitOK
}

// removeFolder removes the helper's own folder, and the one around it if that is empty then.
func removeFolder(name string) error {
	err := os.RemoveAll(name)
	_ = os.Remove(filepath.Dir(name)) // others may be in it
	return err
}

func mainDial(args []string) int {
	flags := newFlags("dial")
	socket := flags.String("socket", "", "the unix socket to connect to")
	pid := flags.Int("pid", 0, "the process that must be listening there")
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
		return usage(fmt.Errorf("--pid %d: want the number of a process", *pid))
	}
	if err := dial(*socket, *pid); err != nil {
		code := fail(err)
		if isGone(err) {
			code = exitGone
		}
		return code
	}
	return exitOK
}

// checkSocket refuses names that mean nothing on the system goos.
func checkSocket(name, goos string) error {
	switch {
	case !isAbstract(name):
		return nil
	case goos != "linux":
		return fmt.Errorf("--socket %s: sockets without a file on %s: %w", name, goos, errors.ErrUnsupported)
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
	fmt.Fprintln(os.Stderr, "sandboxd:", err)
	return exitUsage
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "sandboxd:", err)
	return exitError
}
