package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/remote"
)

// keptDir holds, in the state directory, a file for each environment that can be reattached to.
const keptDir = "environments"

// keptTime is the time for which the file of an environment is kept whose program was killed.
const keptTime = 30 * 24 * time.Hour

// keptSuffix follows the session in the name of a file in keptDir.
const keptSuffix = ".json"

// keptFile is the content of a file in keptDir. It holds secrets.
type keptFile struct {
	Backend string          `json:"backend"`
	Stored  json.RawMessage `json:"stored"`

	session, name string
	backend       remoteBackend
}

// storeKept stores how to reattach to an environment and returns a function that removes that
// again. Where the state directory cannot be written it does nothing, since it only serves later
// commands.
func storeKept(backend string, k *keeping) (forget func() error, err error) {
	nothing := func() error { return nil }
	state, err := stateDir()
	if err != nil || state == "" {
		return nothing, err
	}
	dir := filepath.Join(state, keptDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nothing, nil
	}
	removeOldKept(dir)
	stored, err := json.Marshal(k.stored)
	if err != nil {
		return nothing, err
	}
	data, err := json.Marshal(keptFile{Backend: backend, Stored: stored})
	if err != nil {
		return nothing, err
	}
	name := filepath.Join(dir, k.session+keptSuffix)
	err = replaceFile(name, 0o600, func(w io.Writer) error {
		_, err := w.Write(append(data, '\n'))
		return err
	})
	if err != nil {
		return nothing, nil
	}
	return (&keptFile{name: name}).forget, nil
}

// removeOldKept removes the files of programs that were killed long ago.
func removeOldKept(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasSuffix(e.Name(), keptSuffix) &&
			time.Since(info.ModTime()) > keptTime {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// readKept returns how to reattach to the environment id: its session, its name in the output of
// env list, or a unique start of one of these.
func (p *program) readKept(id string) (*keptFile, error) {
	kept, err := p.findKept(id)
	if kept == nil && err == nil {
		err = unknownEnvironment(id)
	}
	return kept, err
}

func unknownEnvironment(id string) error {
	return usagef("unknown environment %q: it has ended, or another user or host opened it", id)
}

// findKept is readKept, but the result is nil for an unknown environment.
func (p *program) findKept(id string) (*keptFile, error) {
	session := keptSession(id)
	if !remote.IsSession(session) {
		return nil, usagef("%q is not the name of an environment (\"sandboxagent env list\" lists them)",
			id)
	}
	dir, sessions, err := keptSessions()
	if err != nil {
		return nil, err
	}
	if session, err = matchSession(session, sessions); session == "" || err != nil {
		return nil, err
	}
	kept := &keptFile{session: session, name: filepath.Join(dir, session+keptSuffix)}
	data, err := os.ReadFile(kept.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		err = json.Unmarshal(data, kept)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", kept.name, err)
	}
	all := remoteBackends(p.notify)
	i := slices.IndexFunc(all, func(b remoteBackend) bool { return b.name() == kept.Backend })
	if i < 0 {
		return nil, usagef("the stored data of the environment is damaged: unknown backend %q",
			kept.Backend)
	}
	kept.backend = all[i]
	return kept, nil
}

// keptSession returns the session, or the start of one, in a name of env list.
func keptSession(id string) string {
	for _, b := range remoteBackends(nil) {
		id = b.session(id)
	}
	return id
}

// keptSessions returns the sessions of the files in keptDir, and its name.
func keptSessions() (dir string, sessions []string, err error) {
	state, err := stateDir()
	if err != nil || state == "" {
		return "", nil, err
	}
	dir = filepath.Join(state, keptDir)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, e := range entries {
		if session, ok := strings.CutSuffix(e.Name(), keptSuffix); ok {
			sessions = append(sessions, session)
		}
	}
	return dir, sessions, err
}

// matchSession returns id if it is one of sessions, else the only session that starts with it;
// empty if none does.
func matchSession(id string, sessions []string) (string, error) {
	var found []string
	for _, s := range sessions {
		if s == id {
			return s, nil
		}
		if strings.HasPrefix(s, id) {
			found = append(found, s)
		}
	}
	if len(found) > 1 {
		return "", usagef("%q is the start of %d names of environments: %s", id, len(found),
			someNames(found))
	}
	return strings.Join(found, ""), nil
}

// attach connects to the environment. It removes the file of one that has ended.
func (k *keptFile) attach(ctx context.Context) (opened, error) {
	o, err := k.backend.attach(ctx, k.Stored)
	if errors.Is(err, env.ErrGone) {
		err = errors.Join(err, k.forget())
	}
	return o, err
}

// forget removes the file, unless another program has.
func (k *keptFile) forget() error {
	if err := os.Remove(k.name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// configuresNew reports whether the flag name configures a new environment.
func configuresNew(name string) bool {
	general := []string{"env", "workdir", "var", "pass-var", "inherit-vars", "apply"}
	return slices.Contains(general, name) || flagOwners()[name] != nil
}

// protects reports whether f configures the sandbox of an environment of b. It is not ignored, so
// that nobody believes in a protection that the environment lacks.
func protects(b backend, f cli.Flag) bool {
	return f.(documentedFlag).GetCategory() == groupSandbox && obeys(b, f.Names()[0])
}

// selectExisting makes s select the environment id, which is open.
func (p *program) selectExisting(c *cli.Context, s *environmentSettings, id string) error {
	kept, err := p.readKept(id)
	if err != nil {
		return err
	}
	for _, f := range c.Command.Flags {
		name := f.Names()[0]
		if !configuresNew(name) || !c.IsSet(name) {
			continue
		}
		const reason = " has no effect with --env-id, since it configures a new environment"
		source, ok := p.line.sources["--"+name]
		switch protective := protects(kept.backend, f); {
		case !ok || protective && source.variable != "":
			return usagef("--%s%s", name, reason)
		case protective: // a file is not edited for one environment
			p.notify(source.subject() + reason)
		}
	}
	s.existing, s.backend = kept, kept.backend
	s.config, s.keep = openConfig{}, false
	return nil
}
