package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// backend opens the environments that one value of --env selects. It holds the values of its flags.
type backend interface {
	// name is the value of --env.
	name() string
	// flags returns the flags that this backend obeys beside those of all environments.
	flags() []cli.Flag
	// parse reads and validates the values of flags. Errors are usageErrors.
	parse(c *cli.Context) error
	// inPlace reports whether commands work in an existing directory. Otherwise they work in a copy
	// of a directory of the host.
	inPlace() bool
	// open opens an environment.
	open(ctx context.Context, cfg openConfig) (opened, error)
	// demo returns the support of this backend for the demonstration.
	demo() demoSupport
}

// validBackend is a backend whose flags can be validated before an environment is opened.
type validBackend interface {
	backend
	// validate validates the values of flags, with an image instead of theirs unless it is empty.
	// Errors are those of open.
	validate(image string) error
}

// remoteBackend is a backend whose environments can outlive the program.
type remoteBackend interface {
	backend
	// serverUsage describes the output of env list and the garbage that env gc removes, for the help.
	serverUsage() (list, gc string)
	// connectFlags returns the subset of flags that selects the server of the environments.
	connectFlags() []cli.Flag
	// parseConnection reads and validates the values of connectFlags.
	parseConnection(c *cli.Context) error
	// attach connects to an environment that another process opened, whose Close then only
	// disconnects. stored is the encoding of keeping.stored.
	attach(ctx context.Context, stored json.RawMessage) (opened, error)
	// remove removes the environment session, with everything that runs in it. It is on the server of
	// stored, or on that of connectFlags if stored is nil, which needs a session that list names as
	// the user's own.
	remove(ctx context.Context, session string, stored json.RawMessage) error
	// list returns the environments on the server, and the header of their rows.
	list(ctx context.Context) (header []string, all []listed, err error)
	// session returns the session of the environment that list calls name.
	session(name string) string
	// gc removes the leftovers of killed programs and returns them, also after an error.
	gc(ctx context.Context, opts remote.CollectOptions) ([]remote.Collected, error)
}

// listed is an environment in the output of env list.
type listed struct {
	session string
	// own reports that the server names this user and this machine as its creator.
	own bool
	row []string
}

// backends returns all backends in the order in which help lists them. notify, which may be nil,
// receives lines for the user.
func backends(notify func(string)) []backend {
	return []backend{
		&localBackend{}, &dockerBackend{notify: notify}, &k8sBackend{notify: notify},
		&sshBackend{notify: notify},
	}
}

// openConfig is the configuration that every backend needs to open an environment.
type openConfig struct {
	// dir is the value of --workdir.
	dir string
	// vars are variables for commands, as NAME=VALUE, and inherit selects those of the host.
	vars    []string
	inherit vars.Filter
	// keep means that the environment is left running.
	keep bool
	// fill, if set, fills the working directory, which commands cannot change. In-place backends
	// ignore it.
	fill func(ctx context.Context, e env.Environment) error
	// notify receives lines for the user, and noteOnce those that he gets once about a subject.
	notify   func(string)
	noteOnce func(subject, text string)
}

// opened is an environment that a backend has opened.
type opened struct {
	// plain is the environment without decorators.
	plain env.Environment
	// kill kills all processes of the environment at once. The environment stays usable.
	kill func()
	// abandon gives the environment up within about killTime; nil means that kill is enough.
	abandon func()
	// isolated reports that commands cannot reach the host.
	isolated bool
	// remote reports that the files are not those of the host.
	remote bool
	// account is the remote account whose rights commands have; empty means the user's on this host.
	account string
	// keeping lets the environment outlive the program; nil if it cannot.
	keeping *keeping
}

// keeping is for leaving an environment and for reattaching to it.
type keeping struct {
	session string
	// ttl is the lifetime of the environment without a client.
	ttl time.Duration
	// stored is encoded as JSON for remoteBackend.attach. It holds secrets.
	stored any
	// leave disconnects and keeps the environment.
	leave func() error
}

// serverHelp joins one line of usage of each remote backend, which is a paragraph of help.
func serverHelp(line func(remoteBackend) string) string {
	var lines []string
	for _, b := range remoteBackends(nil) {
		lines = append(lines, " --env="+b.name()+": "+line(b))
	}
	return strings.Join(lines, "\n")
}

func findBackend(all []backend, name string) (backend, error) {
	for _, b := range all {
		if b.name() == name {
			return b, nil
		}
	}
	return nil, usagef("--env: unknown environment %q (known: %s)", name, backendNames(all))
}

func backendNames[B backend](all []B) string {
	var names []string
	for _, b := range all {
		names = append(names, b.name())
	}
	return strings.Join(names, ", ")
}

// remoteBackends returns the backends whose environments can outlive the program.
func remoteBackends(notify func(string)) (all []remoteBackend) {
	for _, b := range backends(notify) {
		if r, ok := b.(remoteBackend); ok {
			all = append(all, r)
		}
	}
	return all
}

// backendFlags returns the flags of all backends, each once.
func backendFlags() []cli.Flag {
	var all []cli.Flag
	for _, b := range backends(nil) {
		all = append(all, b.flags()...)
	}
	return uniqueFlags(all)
}

// uniqueFlags removes flags whose name an earlier flag has.
func uniqueFlags(flags []cli.Flag) []cli.Flag {
	seen := make(map[string]bool)
	return slices.DeleteFunc(flags, func(f cli.Flag) bool {
		name := f.Names()[0]
		defer func() { seen[name] = true }()
		return seen[name]
	})
}

// flagOwners has, for each name of a flag of a backend, the names of all backends that obey it.
var flagOwners = sync.OnceValue(func() map[string][]string {
	owners := make(map[string][]string)
	for _, b := range backends(nil) {
		for _, f := range b.flags() {
			for _, name := range f.Names() {
				if !slices.Contains(owners[name], b.name()) {
					owners[name] = append(owners[name], b.name())
				}
			}
		}
	}
	return owners
})

// obeys reports whether the flag name has an effect with the backend b.
func obeys(b backend, name string) bool {
	switch name {
	case "apply":
		return !b.inPlace()
	case "inherit-vars":
		_, remote := b.(remoteBackend)
		return !remote
	}
	owners := flagOwners()[name]
	return owners == nil || slices.Contains(owners, b.name())
}

// checkOwnership rejects set flags that the backend b does not obey.
func checkOwnership(c *cli.Context, b backend) error {
	for _, f := range c.Command.Flags {
		name := f.Names()[0]
		owners := flagOwners()[name]
		if owners == nil || slices.Contains(owners, b.name()) || !c.IsSet(name) {
			continue
		}
		return usagef("--%s has no effect with --env=%s; it is for --env=%s",
			name, b.name(), strings.Join(owners, " and --env="))
	}
	return nil
}
