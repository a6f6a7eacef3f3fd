package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/workspace"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
	"github.com/sandboxagent/sandboxagent/runtime/session"
)

func (p *program) forkCommand() *cli.Command {
	return &cli.Command{
		Usage:     "copy a session, to go on in another way",
		ArgsUsage: "[flags] ID[@N]",
		UsageText: `
sandboxagent session fork ID
sandboxagent session fork ID@12`,
		Description: `
Prints the ID of the new session, which has everything until the point N, or all. The points are
printed by "session show". A session that works on a copy of a directory takes its changes to files
until then along; one that works in the directory itself leaves the files as they are.`,
		Action: p.action(p.forkSession),
	}
}

func (p *program) exportCommand() *cli.Command {
	return &cli.Command{
		Usage:     "write a session to a file",
		ArgsUsage: "[flags] ID FILE|-",
		UsageText: `
sandboxagent session export ID session.tar.gz
sandboxagent session export --format=trajectory ID t.jsonl`,
		Description: `
Writes the session and those of its sub-agents, with long outputs and stored files, but without
backups. As a trajectory it has one JSON object a line for each thought, action, observation and
reflection.`,
		Flags: []cli.Flag{&cli.StringFlag{
			Name: "format", Category: groupOutput, Value: formatArchive,
			Usage: "write the `FORMAT` archive or trajectory",
		}},
		Action: p.action(p.exportSession),
	}
}

func (p *program) importCommand() *cli.Command {
	return &cli.Command{
		Usage:     "read a session from a file",
		ArgsUsage: "[flags] FILE|-",
		UsageText: `
sandboxagent session import session.tar.gz
sandboxagent session import --keep-flags session.tar.gz`,
		Description: `
Prints the ID of the session. It goes on in the current directory, and without the flags that it
was run with, since some of them make this machine run programs. With --keep-flags a session that
worked in place makes its changes to files here when it is resumed.`,
		Flags: []cli.Flag{&cli.BoolFlag{
			Name: "keep-flags", Category: groupCommand,
			Usage: "keep the flags of a session that you trust",
		}},
		Action: p.action(p.importSession),
	}
}

// forkSession is the command session fork.
func (p *program) forkSession(_ context.Context, c *cli.Context) (code int, err error) {
	if c.NArg() != 1 {
		return 0, usagef("give one session as ID or ID@N (\"session list\" prints the IDs)")
	}
	id, point := c.Args().First(), int64(0)
	if strings.Contains(id, "@") {
		if id, point, err = splitPoint(id); err != nil {
			return 0, err
		}
	}
	dir, err := findSession(id)
	if err != nil {
		return 0, err
	}
	r, err := session.Load(dir)
	if err != nil {
		return 0, err
	}
	switch {
	case r.Started.Parent != "":
		return 0, usagef("%s is the session of a sub-agent; fork %s", id, r.Started.Parent)
	case r.Waiting != nil && point == 0:
		return 0, usagef("a call waits for an approval, which would count in both sessions: decide "+
			"about it first, or fork a point (\"session show %s\")", id)
	case fileExists(filepath.Join(dir, pendingName)):
		return 0, unfinished(id)
	}
	var back []session.FileChange
	copied := fileExists(filepath.Join(dir, checkpointName))
	switch {
	case point > 0 && copied:
		if back, err = r.ChangesBack(point); err != nil {
			return 0, explainFork(err)
		}
	case point > 0 && !r.HasPoint(point):
		return 0, explainFork(fmt.Errorf("entry %d: %w", point, session.ErrNoPoint))
	}
	to := filepath.Join(filepath.Dir(dir), uuid.Must(uuid.NewV7()).String())
	o := session.CopyOptions{
		Point: point, Change: func(s *session.Started) { s.Forked = id },
	}
	if copied {
		o.Finish = func(at string) error { return forkChanges(r, at, point, back) }
	}
	if err := r.Copy(to, o); err != nil {
		return 0, err
	}
	p.noteTorn(r, "not copied")
	_, err = fmt.Fprintln(p.std.out, filepath.Base(to))
	return codeDone, err
}

// unfinished is the error of a session whose rollback was interrupted.
func unfinished(id string) error {
	return usagef("a rollback of the session was interrupted; finish it first with \"%s %s\"",
		undoName, id)
}

// explainFork adds the remedy to an error about a point.
func explainFork(err error) error {
	if errors.Is(err, session.ErrNoPoint) {
		return explainLost(err)
	}
	return fmt.Errorf("%w; fork the session without a point", err)
}

func fileExists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// forkChanges gives a copy of a session the changes to an uploaded directory, but for those that
// back takes back.
func forkChanges(r *session.Record, to string, point int64, back []session.FileChange) error {
	disk, record, err := session.Open(to, session.Options{})
	if err != nil {
		return err
	}
	defer disk.Close() //nolint:errcheck // nothing was appended
	if point == 0 {
		return copyFile(filepath.Join(to, checkpointName), filepath.Join(r.Dir, checkpointName))
	}
	from := &storedSession{record: r}
	list, err := from.copied(back)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(to, checkpointName), 0o600, func(w io.Writer) error {
		call := record.LastCall(record.Points[len(record.Points)-1].Seq)
		return workspace.SaveChanges(w, call, workspaceChanges(list), disk.OpenObject)
	})
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it was only read
	return replaceFile(to, 0o600, func(w io.Writer) error {
		_, err := io.Copy(w, in)
		return err
	})
}

// exported are the files of a session that an export has.
var exported = lazyregexp.New(
	`^(journal\.jsonl|workspace\.tar|outputs/[-_0-9A-Za-z]+|objects/[0-9a-f]{64})$`)

// exportSession is the command session export.
func (p *program) exportSession(_ context.Context, c *cli.Context) (code int, err error) {
	if c.NArg() != 2 {
		return 0, usagef("give the ID of a session and the name of a file, or -")
	}
	id, name := c.Args().Get(0), c.Args().Get(1)
	dir, err := findSession(id)
	if err != nil {
		return 0, err
	}
	r, err := session.Load(dir)
	if err != nil {
		return 0, err
	}
	if r.Started.Parent != "" {
		return 0, usagef("%s is the session of a sub-agent; export %s", id, r.Started.Parent)
	}
	if fileExists(filepath.Join(dir, pendingName)) {
		return 0, unfinished(id)
	}
	write := func(w io.Writer) error { return writeExport(w, filepath.Dir(dir), id) }
	switch format := c.String("format"); format {
	case formatArchive:
	case formatTrajectory:
		steps, err := trajectory(r)
		if err != nil {
			return 0, err
		}
		write = func(w io.Writer) error { return session.WriteTrajectory(w, id, steps) }
	default:
		return 0, usagef("--format: %q is not one of %s, %s", format, formatArchive, formatTrajectory)
	}
	if name == "-" {
		return codeDone, write(p.std.out)
	}
	return codeDone, replaceFile(name, 0o600, write)
}

// Formats of exports.
const (
	formatArchive    = "archive"
	formatTrajectory = "trajectory"
)

// trajectory returns the steps of a session, and behind them those of its sub-agents. One that had
// not begun when the program was killed has none.
func trajectory(r *session.Record) ([]session.Step, error) {
	steps := r.Trajectory()
	beside, err := os.ReadDir(filepath.Dir(r.Dir))
	if err != nil {
		return nil, err
	}
	for _, e := range beside {
		if !isAgentOf(e.Name(), r.ID) {
			continue
		}
		agent, err := session.Load(filepath.Join(filepath.Dir(r.Dir), e.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, session.ErrEmpty):
			continue
		case err != nil:
			return nil, err
		}
		for _, s := range agent.Trajectory() {
			s.Number, s.AgentID = len(steps)+1, strings.TrimPrefix(e.Name(), r.ID+"-")
			steps = append(steps, s)
		}
	}
	return steps, nil
}

// writeExport writes a session of a directory, and those of its sub-agents.
func writeExport(w io.Writer, dir, id string) error {
	packed := gzip.NewWriter(w)
	tw := tar.NewWriter(packed)
	root, files := os.DirFS(dir), 0
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		owner, rest, _ := strings.Cut(name, "/")
		switch {
		case err != nil:
			return err
		case name != "." && owner != id && !isAgentOf(owner, id):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !d.Type().IsRegular() || !exported().MatchString(rest):
			return nil
		}
		if files++; files > maxImportFiles {
			return fmt.Errorf("the session has more than %d files, the most that an import takes",
				maxImportFiles)
		}
		return writeEntry(tw, root, name)
	})
	return errors.Join(err, tw.Close(), packed.Close())
}

func writeEntry(tw *tar.Writer, root fs.FS, name string) error {
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if path.Base(name) == session.JournalName && info.Size() > maxImportJournal {
		return fmt.Errorf("%s has %d MiB, and an import takes at most %d MiB", name, info.Size()>>20,
			maxImportJournal>>20)
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: info.Size()}
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(tw, io.LimitReader(f, info.Size())) // a journal may grow
	return err
}

// Bounds of an import: the bytes of all files and of one journal, and the number of files.
const (
	maxImport        = 8 << 30
	maxImportJournal = 1 << 30
	maxImportFiles   = 100_000
)

// importSession is the command session import.
func (p *program) importSession(_ context.Context, c *cli.Context) (code int, err error) {
	if c.NArg() != 1 {
		return 0, usagef("give the name of a file that \"session export\" has written, or -")
	}
	in, name := p.std.in, c.Args().First()
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return 0, usagef("%s", err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		in = f
	}
	state, err := stateDir()
	if err == nil {
		state, err = p.openState(state)
	}
	if err != nil {
		return 0, err
	}
	to := filepath.Join(state, "sessions")
	var temporary string
	if err = os.MkdirAll(to, 0o700); err == nil {
		temporary, err = os.MkdirTemp(to, "import-*"+session.CopySuffix)
	}
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	ids, err := extractExport(in, temporary)
	if err != nil {
		return 0, usagef("%s: %s; it must be a file that \"session export\" has written", name, err)
	}
	if err := p.addSessions(temporary, to, ids, c.Bool("keep-flags")); err != nil {
		return 0, err
	}
	_, err = fmt.Fprintln(p.std.out, ids[0])
	return codeDone, err
}

// extractExport extracts an export to an empty directory, and returns the IDs of its sessions, that
// of the root first.
func extractExport(from io.Reader, dir string) (ids []string, err error) {
	packed, err := gzip.NewReader(from)
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() //nolint:errcheck // it has no state
	tr := tar.NewReader(packed)
	left := int64(maxImport)
	for n := 0; ; n++ {
		h, err := tr.Next()
		switch {
		case errors.Is(err, io.EOF) && len(ids) == 0:
			return nil, errors.New("it has no session")
		case errors.Is(err, io.EOF):
			return ids, nil
		case err != nil:
			return nil, err
		case n >= maxImportFiles:
			return nil, fmt.Errorf("it has more than %d files", maxImportFiles)
		case h.Size > left, path.Base(h.Name) == session.JournalName && h.Size > maxImportJournal:
			return nil, fmt.Errorf("%q is too large", h.Name)
		}
		left -= h.Size // also of a sparse file, which is written whole
		id, rest, _ := strings.Cut(h.Name, "/")
		child := len(ids) > 0 && isAgentOf(id, ids[0])
		switch {
		case h.Typeflag != tar.TypeReg || !exported().MatchString(rest),
			!sessionID().MatchString(id), len(ids) > 0 && id != ids[0] && !child:
			return nil, fmt.Errorf("it has %q", h.Name)
		case len(ids) == 0 || ids[len(ids)-1] != id:
			ids = append(ids, id)
		}
		if err := extractFile(root, h.Name, tr); err != nil {
			return nil, err
		}
	}
}

var sessionID = lazyregexp.New(`^[0-9A-Za-z][-_0-9A-Za-z]{0,127}$`)

// agentIDs is the end of the ID of a sub-agent's session, also of one in another one.
var agentIDs = lazyregexp.New(`^(-agent(_[0-9]+)+)+$`)

// isAgentOf reports whether the session id is that of a sub-agent of another one.
func isAgentOf(id, root string) bool {
	rest, ok := strings.CutPrefix(id, root)
	return ok && agentIDs().MatchString(rest)
}

// extractFile writes a file. The name of an object must be its hash.
func extractFile(root *os.Root, name string, content io.Reader) (err error) {
	if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	hash := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, hash), content)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	if dir, base := path.Split(name); path.Base(dir) == "objects" && base != sum {
		return fmt.Errorf("%q has another content", name)
	}
	return nil
}

// addSessions copies sessions to a directory, all or none.
func (p *program) addSessions(from, to string, ids []string, keepFlags bool) (err error) {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	bare, err := json.Marshal(programLine{Dir: dir, Flags: []string{}, Imported: true})
	if err != nil {
		return err
	}
	change := func(s *session.Started) {
		switch line := (programLine{}); {
		case len(s.Program) == 0:
		case keepFlags && json.Unmarshal(s.Program, &line) == nil:
			line.Dir, line.Project, line.Imported = dir, "", true
			s.Program, _ = json.Marshal(line) // it came from JSON
		default:
			s.Program = bare
		}
	}
	var added []string
	defer func() {
		if err != nil {
			for _, id := range added {
				err = errors.Join(err, os.RemoveAll(filepath.Join(to, id)))
			}
		}
	}()
	if fileExists(filepath.Join(to, ids[0])) {
		return usagef("the session %s exists already; \"session rm\" removes it", ids[0])
	}
	for _, id := range slices.Backward(ids) { // a program that dies leaves none without its agents
		r, err := session.Load(filepath.Join(from, id))
		if err == nil {
			err = os.RemoveAll(filepath.Join(to, id)) // of an import that died
		}
		if err != nil {
			return err
		}
		switch {
		case r.Waiting != nil && !keepFlags:
			return usagef("a call of the session %s waits for an approval, and its rules are not "+
				"imported; decide about it first, or import it with --keep-flags", id)
		}
		o := session.CopyOptions{Change: change}
		if !keepFlags { // whose rollback could change any file
			o.Lost = "the session was imported"
		}
		if changes := filepath.Join(from, id, checkpointName); fileExists(changes) {
			o.Finish = func(at string) error {
				return copyFile(filepath.Join(at, checkpointName), changes)
			}
		}
		if err := r.Copy(filepath.Join(to, id), o); err != nil {
			return err
		}
		added = append(added, id)
		p.noteTorn(r, "not imported")
	}
	return nil
}
