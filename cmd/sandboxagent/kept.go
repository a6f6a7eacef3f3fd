package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env/remote"
)

// keptDir holds, in the state directory, a file for each environment that can be reattached to.
const keptDir = "environments"

// keptTime is the time for which the file of an environment is kept whose program was killed.
const keptTime = 30 * 24 * time.Hour

// keptFile is the content of a file in keptDir. It holds secrets.
type keptFile struct {
	Backend string          `json:"backend"`
	Stored  json.RawMessage `json:"stored"`
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
	data, err := json.Marshal(keptFile{backend, stored})
	if err != nil {
		return nothing, err
	}
	name := filepath.Join(dir, k.session+".json")
	err = replaceFile(name, 0o600, func(w io.Writer) error {
		_, err := w.Write(append(data, '\n'))
		return err
	})
	if err != nil {
		return nothing, nil
	}
	return func() error {
		if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}, nil
}

// removeOldKept removes the files of programs that were killed long ago.
func removeOldKept(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && strings.HasSuffix(e.Name(), ".json") && time.Since(info.ModTime()) > keptTime {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// readKept returns how to reattach to the environment id, which is a session or a name in the
// output of env list. forget removes that.
func readKept(id string) (kept keptFile, forget func() error, err error) {
	session := id
	for _, b := range remoteBackends(nil) {
		session = b.session(session)
	}
	if !remote.IsSession(session) {
		return kept, nil, usagef("%q is not the name of an environment (\"sandboxagent env list\" "+
			"lists them)", id)
	}
	state, err := stateDir()
	if err != nil {
		return kept, nil, err
	}
	name := filepath.Join(state, keptDir, session+".json")
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || state == "" {
		return kept, nil, usagef("unknown environment %q: it has ended, or another user or host "+
			"opened it", id)
	}
	if err == nil {
		err = json.Unmarshal(data, &kept)
	}
	if err != nil {
		return kept, nil, fmt.Errorf("read %s: %w", name, err)
	}
	return kept, func() error { return os.Remove(name) }, nil
}
