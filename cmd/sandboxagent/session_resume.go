package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/vars"
	"github.com/sandboxagent/sandboxagent/env/workspace"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/policy/redact"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/session"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// Names of flags and commands that go on with a session.
const (
	resumeName  = "session resume"
	sessionName = "session"
	lastName    = "last"
	answerName  = "answer"
	approveName = "approve"
	refuseName  = "refuse"
)

// runsTask reports whether a command runs a task with a model.
func runsTask(command string) bool { return command == runName || command == resumeName }

func (p *program) resumeCommand() *cli.Command {
	return &cli.Command{
		Usage:     "go on with a stored session",
		ArgsUsage: "[flags] ID|--last [TASK|-]",
		UsageText: `
sandboxagent session resume --last
sandboxagent session resume ID "Now add a test."`,
		Description: `
The session has its flags again, but for --output, --quiet, --verbose, --yes, --file, --image-file,
--patch and --accept-new-host-key. A flag that you give replaces those of its name; --deny and --ask
add to them. The session goes on in its directory, unless --workdir names another one. Without TASK
the model goes on where it stopped. A call that was interrupted is not repeated; the model is told.
Exit codes are those of run.`,
		Flags: append([]cli.Flag{
			&cli.BoolFlag{
				Name: lastName, Category: groupTask, Usage: "go on with the session that was used last",
			},
			&cli.StringFlag{
				Name: answerName, Category: groupTask,
				Usage: "answer the question of the model with `TEXT`",
			},
			&cli.BoolFlag{
				Name: approveName, Category: groupTask,
				Usage: "run the call that waits for an approval, and go on",
			},
			&cli.StringFlag{
				Name: refuseName, Category: groupTask,
				Usage: "refuse that call, tell the model `TEXT`, and go on",
			},
		}, runFlags()...),
		Action: p.action(p.runTask),
	}
}

// storedSession is an open session to go on with.
type storedSession struct {
	disk   *session.Disk
	store  session.Store
	record *session.Record
	// point is that of a rollback.
	point int64
	// imported means that the session was imported, and that its changes of files were not made here.
	imported bool
	// restored describes the changes that were made again in a new environment.
	restored workspace.Checkpoint
	// planned is a rollback whose changes are saved; nil without one.
	planned *pending
}

// reload reads the record again, with entries that were appended to it.
func (s *storedSession) reload() error {
	r, err := session.Load(s.record.Dir)
	if err != nil {
		return err
	}
	r.Torn = s.record.Torn // which is not in the file any more
	s.record = r
	return nil
}

// run runs an input in the session, which it closes.
func (s *storedSession) run(
	ctx context.Context, a *agent.Agent, in agent.Input,
) (agent.RunResult, error) {
	resumed, err := a.Resume(ctx, s.store, s.record, agent.SessionOptions{})
	if err != nil {
		return agent.RunResult{}, err
	}
	return resumed.Run(ctx, in) // the agent closes it
}

// newStores returns the function that creates the stores of sessions in a directory.
func (p *program) newStores(dir string) func(id string) (session.Store, error) {
	create := session.OnDisk(dir)
	return func(id string) (session.Store, error) {
		s, err := create(id)
		if err != nil {
			return nil, err
		}
		d, ok := s.(*session.Disk)
		if !ok || strings.Contains(id, "-agent_") {
			return s, nil
		}
		return p.hold(d), nil
	}
}

// continueTask is the task of a session that goes on without one.
const continueTask = "Go on with the task."

// reply returns the decision of the flags about the call that waits; nil without one.
func (p *program) reply(c *cli.Context, args []string) (*agent.Reply, error) {
	s := p.stored
	r := &agent.Reply{Verdict: agent.ApproveOnce}
	flag := "--" + approveName
	switch refused := c.IsSet(refuseName); {
	case refused && c.Bool(approveName):
		return nil, usagef("--%s and --%s exclude each other", approveName, refuseName)
	case refused:
		flag = "--" + refuseName
		r.Verdict, r.Message = agent.Refuse, c.String(refuseName)
	case !c.Bool(approveName):
		return nil, nil
	}
	waiting := s.record.Waiting
	switch {
	case len(args) > 0 || c.IsSet(answerName):
		return nil, usagef("%s excludes a task and --%s", flag, answerName)
	case waiting == nil:
		return nil, usagef("%s: in the session %s no call waits for an approval", flag, s.record.ID)
	case r.Verdict == agent.ApproveOnce && !waiting.Expires.IsZero() &&
		cmp.Or(p.clock, llm.SystemClock()).Now().After(waiting.Expires):
		return nil, usagef("%s: the time for the approval is over since %s; go on with --%s TEXT or a "+
			"task", flag, waiting.Expires.Local().Format(time.DateTime), refuseName)
	}
	return r, nil
}

// task returns the arguments of a run of command that goes on: its task, if args have none.
func (s *storedSession) task(command string, args []string, answer string) ([]string, error) {
	asked := s.record.Status() == string(agent.StatusAwaitingHuman)
	switch {
	case s.record.Waiting != nil && len(args) == 0 && command != runName:
		return nil, usagef("a call waits for an approval (\"session show %s\"): give --%s, --%s TEXT or "+
			"a task", s.record.ID, approveName, refuseName)
	case answer != "" && len(args) > 0:
		return nil, usagef("--%s and a task exclude each other", answerName)
	case answer != "" && !asked:
		return nil, usagef("--%s: the session %s has no open question", answerName, s.record.ID)
	case answer != "":
		return []string{answer}, nil
	case len(args) > 0 || command == runName: // which names what is missing
		return args, nil
	case asked:
		return nil, usagef("the model has asked something (\"session show %s\"): answer with --%s TEXT",
			s.record.ID, answerName)
	case s.record.Status() == string(agent.StatusCompleted):
		return nil, usagef("the task of the session %s is done; give it another one", s.record.ID)
	case !slices.ContainsFunc(s.record.Conversation,
		func(t session.Turn) bool { return t.Kind == session.TurnUser }): // its program died before
		return nil, usagef("the session %s has no task yet; give it one", s.record.ID)
	}
	return []string{continueTask}, nil
}

// programLine is what the journal of a session has about the command line of its program.
type programLine struct {
	// Dir is the working directory of the program.
	Dir string `json:"dir"`
	// Flags are those of the run as --NAME=VALUE, with those that variables and files set, whose names
	// are in Variables.
	Flags     []string `json:"flags"`
	Variables []string `json:"variables,omitempty"`
	// Repository are those of Variables that a repository set which the user does not trust.
	Repository []string `json:"repository,omitempty"`
	// Project is the directory of the project whose file counted; empty if none could.
	Project string `json:"project,omitempty"`
	// Rules are those of the project, which tightened the policy.
	Rules []policy.Rule `json:"rules,omitempty"`
	// Again are flags without their values, which have secrets: --NAME, or --var=NAME.
	Again []string `json:"again,omitempty"`
	// Imported means that the session was imported, and that its changes of files were not made here.
	Imported bool `json:"imported,omitempty"`
}

// ownFlags are flags that a session does not hand on: they are about one run, or a consent.
var ownFlags = [...]string{
	"output", "quiet", "verbose", "file", "image-file", "patch", sessionName, lastName, answerName,
	approveName, refuseName, "yes", "accept-new-host-key", "failed", "status",
}

// addingFlags are flags that are added to those of a session, and do not replace them.
var addingFlags = [...]string{"deny", "ask"}

// recordLine returns the programLine of this program. The environment variables of this process
// must still have the secrets.
func (p *program) recordLine(set []string) (json.RawMessage, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	secrets := redact.New(redact.Patterns, secretValues(slices.Concat(p.environ(), set)))
	line := programLine{Dir: dir, Project: p.line.project}
	if p.line.rules != nil {
		line.Rules = p.line.rules.Rules
	}
	line.Imported = p.stored != nil && p.stored.imported && p.line.isOn("read-only")
	for _, f := range p.line.flags {
		name, value := cutValue(f)
		variable, content, _ := strings.Cut(value, "=")
		switch {
		case slices.Contains(ownFlags[:], name):
		case name == "var" && (vars.IsSecretName(variable) || secrets.Text(content) != content):
			line.Again = append(line.Again, "--var="+variable)
			if _, ok := p.line.sources["--"+name]; ok {
				line.Variables = append(line.Variables, name)
			}
		case secrets.Text(f) != f:
			line.Again = append(line.Again, "--"+name)
			if _, ok := p.line.sources["--"+name]; ok {
				line.Variables = append(line.Variables, name)
			}
		default:
			line.Flags = append(line.Flags, f)
			source, ok := p.line.sources["--"+name]
			if ok && !slices.Contains(addingFlags[:], name) || name == "max-cost" && p.line.costOfRun {
				line.Variables = append(line.Variables, name)
			}
			if source.repository {
				line.Repository = append(line.Repository, name)
			}
		}
	}
	return json.Marshal(line)
}

// cutValue returns the name and the value of a flag of the form --NAME=VALUE.
func cutValue(flag string) (name, value string) {
	name, value, _ = strings.Cut(strings.TrimPrefix(flag, "--"), "=")
	return name, value
}

func flagName(flag string) string {
	name, _ := cutValue(flag)
	return name
}

// sessionsDir returns the directory of all sessions. It need not exist.
func sessionsDir() (string, error) {
	state, err := stateDir()
	if err == nil && state == "" {
		err = usagef("there is no home directory with sessions; set SANDBOXAGENT_STATE_DIR")
	}
	return filepath.Join(state, "sessions"), err
}

// findSession returns the directory of the session id.
func findSession(id string) (string, error) {
	dir, err := sessionsDir()
	if err != nil {
		return "", err
	}
	at := filepath.Join(dir, id)
	if id == "" || filepath.Base(id) != id || id == "." || id == ".." {
		return "", usagef("%q is no ID of a session (\"session list\" prints them)", id)
	}
	if _, err := os.Stat(filepath.Join(at, session.JournalName)); errors.Is(err, fs.ErrNotExist) {
		return "", usagef("no session %q in %s (\"session list\" prints the IDs)", id, dir)
	}
	return at, nil
}

// lastSession returns the ID of the session that was used last.
func lastSession() (string, error) {
	dir, err := sessionsDir()
	if err != nil {
		return "", err
	}
	unread := make(map[string]error)
	list, err := session.List(dir, func(dir string, err error) { unread[dir] = err })
	if err != nil {
		return "", err
	}
	for dir, err := range unread {
		info, serr := os.Stat(filepath.Join(dir, session.JournalName))
		if serr == nil && (len(list) == 0 || info.ModTime().After(list[0].Updated)) {
			return "", fmt.Errorf("--%s: the session that was used last cannot be read: %w", lastName, err)
		}
	}
	if len(list) == 0 {
		return "", usagef("--%s: no session in %s", lastName, dir)
	}
	return list[0].ID, nil
}

// recalledID returns the ID of the session that the command line goes on with, and the point of a
// rollback; empty if none.
func (p *program) recalledID() (id string, point int64, err error) {
	l := &p.line
	switch {
	case l.command == runName:
		return l.value(sessionName), 0, nil
	case l.command == rollbackName && len(l.rest) == 1:
		return splitPoint(l.rest[0])
	case l.command == rollbackName:
		return "", 0, usagef("give one session with a point, such as ID@12 (\"session show\" prints " +
			"the points)")
	case l.command != resumeName && l.command != undoName:
		return "", 0, nil
	}
	id, err = l.resumedID()
	return id, 0, err
}

// resumedID returns the ID in the arguments, and removes it from them, or with --last the last one.
func (l *commandLine) resumedID() (id string, err error) {
	switch {
	case len(l.rest) > 1 && l.command == undoName:
		return "", usagef("give the ID of one session (\"session list\" prints them)")
	case !l.isOn(lastName) && len(l.rest) == 0:
		return "", usagef("the ID of the session is missing (\"session list\" prints them), or --%s",
			lastName)
	case !l.isOn(lastName):
		id, l.rest = l.rest[0], l.rest[1:]
		return id, nil
	case len(l.rest) > 0:
		if _, err := findSession(l.rest[0]); err == nil {
			return "", usagef("--%s and the ID of a session exclude each other", lastName)
		}
	}
	return lastSession()
}

// isOn reports whether a flag without a value is set.
func (l *commandLine) isOn(name string) bool {
	on, err := strconv.ParseBool(l.value(name))
	return err == nil && on
}

// recall opens the session that the command line goes on with, if any, and adds the flags of
// variables, files and the session.
func (p *program) recall(app *cli.App) (err error) {
	if p.line.command == batchRetryName {
		return p.recallBatch(app)
	}
	id, point, err := p.recalledID()
	if err != nil {
		return err
	}
	if id == "" {
		err := p.line.addSettings(app, programLine{})
		if err == nil {
			err = p.openReplay(app)
		}
		return err
	}
	dir, err := findSession(id)
	if err != nil {
		return err
	}
	store, record, err := session.Open(dir, session.Options{})
	damaged := (*session.CorruptError)(nil)
	switch {
	case errors.Is(err, session.ErrInUse):
		return usagef("the session %s is in use: another process works on it", id)
	case errors.As(err, &damaged), errors.Is(err, session.ErrEmpty):
		return fmt.Errorf("%w; it can be removed with \"session rm\"", err)
	case err != nil:
		return err
	}
	p.stored = &storedSession{disk: store, store: p.hold(store), record: record, point: point}
	p.noteTorn(record, "removed")
	if record.Started.Parent != "" {
		return usagef("%s is the session of a sub-agent; go on with %s", id, record.Started.Parent)
	}
	var before programLine
	if err := json.Unmarshal(record.Started.Program, &before); err != nil {
		return usagef("the session %s was not started by this program, or by another version", id)
	}
	p.stored.imported = before.Imported
	given := p.line.given()
	if err := p.line.addSettings(app, before); err != nil {
		return err
	}
	if err := p.openReplay(app); err != nil {
		return err
	}
	if err := p.markLost(); err != nil {
		return err
	}
	if !rollsBack(p.line.command) {
		err := p.line.checkAgain(before)
		if err == nil {
			err = p.stored.finishRollback(context.Background(), nil, p.printNote)
		}
		if err != nil {
			return err
		}
	}
	if err := p.enter(before.Dir, given); err != nil {
		return err
	}
	if dropped := p.line.merge(before, given, app.Command(p.line.command).Flags); len(dropped) > 0 {
		p.printNote("flags of the session without effect here: " + strings.Join(dropped, " "))
	}
	if n := p.stored.record.Planning; n != nil && !slices.Contains(given, "mode") {
		p.line.replaceMode(*n)
	}
	return nil
}

// noteTorn tells what became of an incomplete last line of a journal.
func (p *program) noteTorn(r *session.Record, fate string) {
	if r.Torn > 0 {
		p.printNote(fmt.Sprintf("the last entry of the session %s was incomplete, and is %s (%d bytes)",
			r.ID, fate, r.Torn))
	}
}

// markLost stores that the changes of the last calls are not known, if the program died, also after
// the end of its run, before it has stored them.
func (p *program) markLost() error {
	s := p.stored
	known, err := p.toolRegistry()
	if err != nil {
		return err
	}
	var all []tool.Tool
	for _, name := range known.Names() {
		t, _ := known.Get(name)
		all = append(all, t)
	}
	call := s.record.Unrecorded(changingNames(all), storesChanges)
	if call == "" {
		return nil
	}
	if err := s.store.Append(session.TypeSnapshot, session.Snapshot{
		Call: call, Lost: "the program was killed before they were stored",
	}); err != nil {
		return err
	}
	return s.reload()
}

// unrecorded returns the flags that checkAgain wants for a session with a program line, each behind
// a blank. The user replaces VALUE.
func unrecorded(program json.RawMessage) (flags string) {
	var line programLine
	_ = json.Unmarshal(program, &line) // it was encoded by this program
	for _, again := range line.Again {
		if name, _ := cutValue(again); !slices.Contains(line.Variables, name) {
			flags += " " + again + "=VALUE"
		}
	}
	return flags
}

// storesChanges reports whether the program of a run has stored the changes of its calls.
func storesChanges(r session.Run) bool {
	var line programLine
	return json.Unmarshal(r.In.Program, &line) != nil ||
		!slices.Contains(line.Flags, "--read-only=true")
}

// given returns the names of the flags in the arguments.
func (l *commandLine) given() (names []string) {
	for _, f := range l.flags {
		name := flagName(f)
		if _, ok := l.sources["--"+name]; !ok {
			names = append(names, name)
		}
	}
	return names
}

// checkAgain returns an error if a flag is missing whose value the session does not have.
func (l *commandLine) checkAgain(before programLine) error {
	given := append(l.given(), before.Variables...)
	for _, again := range before.Again {
		name, variable := cutValue(again)
		if !slices.ContainsFunc(l.flags, func(f string) bool {
			n, value := cutValue(f)
			return n == name && slices.Contains(given, n) &&
				(variable == "" || strings.HasPrefix(value, variable+"="))
		}) {
			return usagef("%s is not recorded, since its value has a secret: give it again", again)
		}
	}
	return nil
}

// merge adds the flags of a session, and returns those that have no effect with the selected
// environment. The given flags of the arguments go before them, and they before variables and
// files, unless one of these set them too.
func (l *commandLine) merge(
	before programLine, given []string, flags []cli.Flag,
) (dropped []string) {
	var set []string // by variables and files
	for name := range l.sources {
		set = append(set, strings.TrimPrefix(name, "--"))
	}
	// fresh means that a variable or a file set the flag, and sets it again. A repository replaces
	// only flags of its own.
	fresh := func(name string) bool {
		return slices.Contains(before.Variables, name) && slices.Contains(set, name) &&
			!slices.Contains(addingFlags[:], name) &&
			(!l.sources["--"+name].repository || slices.Contains(before.Repository, name))
	}
	replaced := func(name, value string) bool {
		variable, _, _ := strings.Cut(value, "=")
		switch {
		case findFlag(flags, name) == nil, fresh(name), name == baseURLName && fresh("model") &&
			providerOf(lastValue(before.Flags, "model")) != providerOf(l.value("model")):
			return true
		case slices.Contains(addingFlags[:], name):
			return slices.Contains(l.flags, "--"+name+"="+value)
		case name == "var":
			return slices.ContainsFunc(l.flags, func(f string) bool {
				return strings.HasPrefix(f, "--var="+variable+"=")
			})
		case slices.Contains(given, name):
			return true
		}
		others := map[string]string{
			baseURLName: "model", // an address of one provider is none of another
			"env":       "env-id", "env-id": "env", "apply": noUploadFlag, "upload-ignored": noUploadFlag,
		}
		return others[name] != "" && slices.Contains(given, others[name])
	}
	var recalled []string
	for _, f := range before.Flags {
		if !replaced(cutValue(f)) {
			recalled = append(recalled, f)
			l.recalled = append(l.recalled, "--"+flagName(f))
		}
	}
	has := func(list []string, name string) bool {
		return slices.ContainsFunc(list, func(f string) bool { return flagName(f) == name })
	}
	for _, name := range set { // a recalled flag goes before its variable and its key in a file
		if has(recalled, name) && !slices.Contains(addingFlags[:], name) {
			delete(l.sources, "--"+name)
			l.flags = slices.DeleteFunc(l.flags, func(f string) bool { return flagName(f) == name })
		}
	}
	existing := has(recalled, "env-id") || has(l.flags, "env-id")
	name := ""
	for _, f := range slices.Concat(recalled, l.flags) {
		if n, value := cutValue(f); n == "env" {
			name = value
		}
	}
	if f, ok := findFlag(flags, "env").(cli.DocGenerationFlag); ok && name == "" {
		name = f.GetValue()
	}
	selected, err := findBackend(backends(nil), name)
	for _, f := range recalled {
		n := flagName(f)
		if existing && configuresNew(n) || !existing && err == nil && !obeys(selected, n) {
			dropped = append(dropped, f)
		} else {
			l.flags = append(l.flags, f)
		}
	}
	return dropped
}

// replaceMode makes the mode that of the session, unless that has no modes.
func (l *commandLine) replaceMode(planning bool) {
	for i, f := range l.flags {
		if flagName(f) == "mode" {
			l.flags[i] = "--mode=build"
			if planning {
				l.flags[i] = "--mode=plan"
			}
		}
	}
}

// enter changes to the directory of a session, to which the names in its flags are relative, unless
// the arguments name a working directory. Names of files in the arguments stay relative to the
// present one.
func (p *program) enter(dir string, given []string) error {
	if now, err := os.Getwd(); err == nil && now == dir || slices.Contains(given, "workdir") {
		return nil
	}
	if err := p.line.makeAbsolute(); err != nil {
		return err
	}
	if err := os.Chdir(dir); err != nil {
		return usagef("the directory of the session cannot be entered: %s; name the one of its files "+
			"with --workdir", err)
	}
	p.printNote("the session goes on in " + dir)
	return nil
}

// makeAbsolute makes the names of files in the flags absolute.
func (l *commandLine) makeAbsolute() error {
	names := append([]string{"file", "image-file", "patch", "junit"}, fileKeys[:]...)
	for i, f := range l.flags {
		name, value := cutValue(f)
		if !slices.Contains(names, name) || value == fromStdin ||
			name == "policy" && slices.Contains(policy.Presets(), value) {
			continue
		}
		abs, err := filepath.Abs(value)
		if err != nil {
			return err
		}
		l.flags[i] = "--" + name + "=" + abs
	}
	return nil
}

// printNote is notify before the flags are parsed.
func (p *program) printNote(line string) {
	if !p.line.isOn("quiet") {
		p.printLine("note: " + line)
	}
}

// heldSession is a session that the program has open.
type heldSession struct {
	disk *session.Disk
	// store is disk, but its Close leaves the session open.
	store session.Store
}

// hold returns a store whose Close leaves the session open, until closeHeld.
func (p *program) hold(d *session.Disk) session.Store {
	held := heldSession{d, heldStore{d}}
	if p.wrapStore != nil {
		held.store = p.wrapStore(held.store)
	}
	p.held = append(p.held, held)
	return held.store
}

// heldSession returns an open session.
func (p *program) heldSession(id string) *heldSession {
	i := slices.IndexFunc(p.held, func(h heldSession) bool {
		return filepath.Base(h.disk.Dir()) == id
	})
	return &p.held[i]
}

// heldStore is a store whose Close only makes its entries durable.
type heldStore struct{ *session.Disk }

func (s heldStore) Close() error { return s.Sync() }

// closeHeld lets other processes open the sessions of this one.
func (p *program) closeHeld() {
	for _, h := range p.held {
		_ = h.disk.Close() // its entries are durable
	}
}
