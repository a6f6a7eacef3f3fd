package main

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"
	"mvdan.cc/sh/v3/syntax"

	"github.com/sandboxagent/sandboxagent/env/k8s"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/batch"
	"github.com/sandboxagent/sandboxagent/runtime/event"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
)

// batchRunner runs the tasks of a batch, each as the command run does.
type batchRunner struct {
	p        *program
	in       batchInput
	settings batchSettings
	// line is the programLine of the batch.
	line json.RawMessage
	show *batchDisplay
	// flags are those of run for all tasks.
	flags []string
	// models are the models of all tasks by their names, but for scripts, which each run opens.
	models map[string]model
	// budget is the money of the batch; nil without a limit. It is spent when a request has no room in
	// it.
	budget *agent.Budget
	spent  atomic.Bool
	// environ are the environment variables of the program, with the keys.
	environ []string
	// passed are the environment variables that commands get.
	passed []string
	// failed is the number of results before the start that are failures; negative until it is known.
	failed int
	// refusal is why the server of a model refuses all tasks; nil while it does not.
	refusal atomic.Pointer[string]
	// env is the backend of all environments. inPlace, readOnly and mounts: they work in directories
	// that exist, change nothing, or have directories of the host or volumes beside them that they can
	// change.
	env                       string
	inPlace, readOnly, mounts bool
	// archives is the directory of unpacked archives, a new one for each attempt. Its name follows
	// from that of the batch, so that the next start finds the files of a killed one.
	archives string
	// cluster is the connection of all environments to a cluster.
	cluster sharedCluster
	// cancel ends the batch.
	cancel context.CancelCauseFunc
	// consented is the answer of the user to the question whether models may act without a sandbox.
	consented func(ctx context.Context, e *environment) error

	mu      sync.Mutex
	running map[*program]bool
	noted   map[string]bool
	// asking is held during a question about a key; passphrases are the answers by file.
	asking      sync.Mutex
	passphrases map[string][]byte
}

// part makes a program one attempt of a batch.
type part struct {
	runner  *batchRunner
	attempt *batch.Attempt
	// isolated means that the commands of its environment are in a sandbox.
	isolated bool
	// failure is the error of the attempt, and limit the limit that has ended it; may be empty.
	failure error
	limit   string
}

// opened reports that the environment is open.
func (a *part) opened() {
	if a != nil {
		a.attempt.Opened()
	}
}

// budget returns the money of the batch; may be nil.
func (a *part) budget() *agent.Budget {
	if a == nil {
		return nil
	}
	return a.runner.budget
}

// environ returns the environment variables of the program with the keys of models, which a batch
// removes before its tasks run.
func (p *program) environ() []string {
	if p.part != nil {
		return p.part.runner.environ
	}
	return os.Environ()
}

// Names of the files of an attempt.
const (
	attemptPatch    = "changes.patch"
	attemptLog      = "progress.log"
	attemptSessions = "sessions"
)

// newBatchRunner validates everything possible before the first task starts.
func (p *program) newBatchRunner(
	c *cli.Context, in batchInput, settings batchSettings,
) (*batchRunner, error) {
	s, err := p.parseRunFlags(c.Context, c)
	if err != nil {
		return nil, err
	}
	guard, err := p.parseGuardFlags(c, s.config.vars)
	if err != nil {
		return nil, err
	}
	r := &batchRunner{
		p: p, in: in, settings: settings, models: make(map[string]model),
		environ: os.Environ(), env: s.backend.name(), inPlace: s.backend.inPlace(),
		readOnly: s.readOnly, failed: -1,
		mounts:  mountsWritable(c.StringSlice("mount")) || len(c.StringSlice("allow-write")) > 0,
		running: make(map[*program]bool), noted: make(map[string]bool),
		passphrases: make(map[string][]byte),
	}
	if b, ok := s.backend.(*k8sBackend); ok {
		r.mounts = r.mounts || b.config.SharesFiles()
	}
	r.consented = r.consentOnce(s.yes || guard.rules != nil)
	_, ofFile := p.line.sources["--max-cost"]
	ofFile = ofFile || p.line.costOfRun
	if ofFile {
		r.settings.maxCost = 0 // it limits each run
	}
	if r.line, err = p.recordLine(s.config.vars); err != nil {
		return nil, err
	}
	of := runFlags()
	for _, f := range p.line.flags {
		name := flagName(f)
		if findFlag(of, name) != nil && !slices.Contains(withoutBatch[:], name) ||
			name == "max-cost" && ofFile {
			r.flags = append(r.flags, f)
		}
	}
	if err := r.checkTasks(c, s); err != nil {
		return nil, err
	}
	if err := r.openModels(c, s); err != nil {
		return nil, err
	}
	if r.settings.maxCost > 0 {
		before, err := batch.Summarize(in.dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		r.budget = agent.NewBudget(0, r.settings.maxCost, 0, before.CostUSD)
	}
	r.passed = s.config.inherit.Pass
	hideKeys(r.passed)
	return r, nil
}

// checkTasks reports the first task that the environment does not support, whose files are missing,
// or that would work in the same directory as another one at the same time.
func (r *batchRunner) checkTasks(c *cli.Context, s runSettings) error {
	type place struct {
		dir  string
		task batch.Task
	}
	var places []place
	host := r.env != (&sshBackend{}).name() // the directories are those of this machine
	if valid, ok := s.backend.(validBackend); ok {
		if err := valid.validate(""); err != nil {
			return err
		}
	}
	for _, t := range r.in.tasks {
		bad := badField(t)
		if err := r.checkFields(c, s, t); err != nil {
			return err
		}
		dir := path.Clean(cmp.Or(t.Workdir, c.String("workdir"), "."))
		if r.isElsewhere(cmp.Or(t.Archive, dir)) {
			continue
		}
		if t.Archive != "" {
			if err := r.checkArchive(t.Archive, host); err != nil {
				return bad("archive", "%s", err)
			}
			continue
		}
		if host && !c.Bool(noUploadFlag) {
			var err error
			if dir, err = realDir(dir); err != nil {
				return bad("workdir", "%s", err)
			}
			if r.in.dir == "" { // a cluster keeps the results
				continue
			}
			if isBelow(dir, realName(r.in.dir)) {
				return bad("workdir", "the results would be in it, %s, where the task can change them; "+
					"name a directory outside with --out", dir)
			}
		}
		places = append(places, place{dir, t})
	}
	if !r.inPlace || r.readOnly || r.settings.parallel == 1 {
		return nil
	}
	slices.SortFunc(places, func(a, b place) int { // directories before those in them
		return slices.Compare(strings.Split(a.dir, "/"), strings.Split(b.dir, "/"))
	})
	for i, p := range places[min(1, len(places)):] {
		if other := places[i]; isBelow(other.dir, p.dir) {
			return usagef("%s: workdir: the task %s would change the same directory, %s, at the same "+
				"time; give each a workdir or an archive of its own, or use --parallel 1, --read-only "+
				"or --env=docker", p.task.Where(), other.task.ID, p.dir)
		}
	}
	return nil
}

// badField returns a function that makes the error of a field of a task.
func badField(t batch.Task) func(field, format string, args ...any) error {
	return func(field, format string, args ...any) error {
		return usagef("%s: %s: %s", t.Where(), field, fmt.Sprintf(format, args...))
	}
}

// checkFields reports what has no effect, or is missing, in a task.
func (r *batchRunner) checkFields(c *cli.Context, s runSettings, t batch.Task) error {
	bad := badField(t)
	if t.Image != "" && !slices.Contains(flagOwners()["image"], s.backend.name()) {
		return bad("image", "it has no effect with --env=%s", r.env)
	}
	if valid, ok := s.backend.(validBackend); ok && t.Image != "" {
		if err := valid.validate(t.Image); err != nil {
			return bad("image", "%s", err)
		}
	}
	for _, u := range t.Upload {
		from, err := parseTransfer("upload", u)
		if err == nil && !r.isElsewhere(from.source) {
			_, err = os.Stat(from.source)
		}
		if err != nil {
			return bad("upload", "%s", err)
		}
	}
	switch ofImage := c.Bool(noUploadFlag); {
	case ofImage && t.Archive != "":
		return bad("archive", "it has no effect with --%s", noUploadFlag)
	case ofImage && t.Workdir != "" && !path.IsAbs(t.Workdir):
		return bad("workdir", "%q is not absolute; with --%s it is a directory of the image",
			t.Workdir, noUploadFlag)
	}
	return nil
}

// isElsewhere reports whether a name is not one of this machine.
func (r *batchRunner) isElsewhere(name string) bool {
	return r.settings.isElsewhere != nil && r.settings.isElsewhere(name)
}

// checkArchive reports why an archive cannot be used, and finds the directory of archives.
func (r *batchRunner) checkArchive(name string, host bool) error {
	if !host {
		return fmt.Errorf("it has no effect with --env=%s; use workdir", r.env)
	}
	switch fi, err := os.Stat(name); {
	case err != nil:
		return err
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file", name)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("%w; archives are unpacked there", err)
	}
	r.archives = filepath.Join(base, "sandboxagent", "batch",
		fmt.Sprintf("%x", sha256.Sum256([]byte(r.in.dir)))[:16])
	return nil
}

// realDir returns the absolute name of a directory without symlinks.
func realDir(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return "", err
	}
	fi, err := os.Stat(dir)
	if err == nil && !fi.IsDir() {
		err = fmt.Errorf("%s is no directory", dir)
	}
	return dir, err
}

// realName returns an absolute name without symlinks, as far as it exists.
func realName(name string) string {
	missing := ""
	for dir := name; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if found, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(found, missing)
		}
		missing = filepath.Join(filepath.Base(dir), missing)
	}
	return name
}

// isBelow reports whether name is dir or below it.
func isBelow(dir, name string) bool {
	rel, err := filepath.Rel(dir, name)
	return err == nil && filepath.IsLocal(rel)
}

// mountsWritable reports whether the values of --mount have directories that commands can change.
func mountsWritable(values []string) bool {
	return slices.ContainsFunc(values, func(v string) bool { return !strings.HasSuffix(v, ":ro") })
}

// openModels opens the models of all tasks. It sends nothing.
func (r *batchRunner) openModels(c *cli.Context, s runSettings) error {
	limiters := make(map[string]*llm.Limiter) // by provider
	names := map[string]string{c.String("model"): ""}
	for _, t := range r.in.tasks {
		name := cmp.Or(t.Model, c.String("model"))
		if names[name] == "" && (t.Model != "" || name == "") {
			names[name] = t.Where() + ": "
		}
	}
	if _, ok := names[""]; ok && !slices.ContainsFunc(r.in.tasks, func(t batch.Task) bool {
		return t.Model == ""
	}) {
		delete(names, "") // all tasks have one
	}
	if len(names) == 0 {
		return nil
	}
	kinds, err := r.p.agentKinds(c)
	if err != nil {
		return err
	}
	if _, err = withKind(c, agent.Config{Subagents: agent.Subagents{Kinds: kinds}}); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if strings.HasPrefix(name, replayPrefix) {
			return usagef("%s--model %s: a batch cannot replay a session", names[name], name)
		}
		m, err := openModelNamed(c, name, r.address(c.String("model"), name, c.String("base-url")),
			r.settings.keysElsewhere)
		var usage *usageError
		if errors.As(err, &usage) {
			usage.message = names[name] + usage.message
		}
		if err != nil {
			return err
		}
		limited := slices.IndexFunc(r.in.tasks, func(t batch.Task) bool {
			return t.Limits.MaxCostUSD > 0 && cmp.Or(t.Model, c.String("model")) == name
		})
		switch {
		case s.limits.MaxCost > 0:
			err = checkPrices(m.profile, kinds, "--max-cost")
		case limited >= 0:
			err = checkPrices(m.profile, kinds, r.in.tasks[limited].Where()+": limits.max_cost")
		}
		if err != nil {
			return err
		}
		if strings.HasPrefix(name, scriptPrefix) {
			continue
		}
		provider := providerOf(name)
		if limiters[provider] == nil {
			limiters[provider] = llm.NewLimiter(llm.RetryPolicy{
				MaxWait: s.retry.MaxWait, Clock: r.p.clock,
			})
		}
		m.client = limiters[provider].Limit(m.client)
		r.models[name] = m
	}
	return nil
}

// address returns the base URL of a task's model: that of the batch if the provider is the same.
func (r *batchRunner) address(ofBatch, ofTask, baseURL string) string {
	if providerOf(ofBatch) != providerOf(ofTask) {
		return ""
	}
	return baseURL
}

// attempt makes one attempt at a task.
func (r *batchRunner) attempt(ctx context.Context, a *batch.Attempt) (o batch.Outcome) {
	fail := func(status agent.Status, err error) batch.Outcome {
		return batch.Outcome{Result: event.Result{
			Status: string(status), ExitCode: runCode(ctx, status), Error: err.Error(),
		}}
	}
	log, err := os.OpenFile(filepath.Join(a.Dir, attemptLog), os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return fail(agent.StatusEnvironmentError, err)
	}
	defer log.Close() //nolint:errcheck // it is for people; the result has what counts
	workdir := a.Task.Workdir
	if a.Task.Archive != "" {
		workdir = filepath.Join(r.archives, fmt.Sprintf("%s.%d", a.Task.ID, a.Number))
		defer removeTree(workdir)
		if err := unpack(ctx, a.Task.Archive, workdir); err != nil {
			return fail(statusOf(ctx, err, agent.StatusEnvironmentError), err)
		}
	}
	var out bytes.Buffer
	sub := &program{
		std:  newStreams(strings.NewReader(a.Task.Prompt), &out, r.p.tee(log)),
		line: r.p.line, handed: r.p.handed,
		part: &part{runner: r, attempt: a}, tools: r.p.tools, wrapStore: r.p.wrapStore,
		wrapClient: r.p.wrapClient, clock: r.p.clock, patience: r.p.patience,
	}
	sub.line.command, sub.line.rest = runName, []string{fromStdin}
	sub.line.flags = r.flagsOf(a, workdir)
	r.track(sub, true)
	defer r.track(sub, false)
	defer sub.closeHeld()
	if err = sub.runAction(ctx, sub.appFor([]string{runName})); err == nil {
		err = json.Unmarshal(out.Bytes(), &o.Result)
	}
	if err != nil {
		return fail(statusOf(ctx, err, statusUsage), cmp.Or(sub.part.failure, err))
	}
	switch {
	case a.Task.Archive != "":
		o.Resume = "" // its directory is gone
	case o.Resume != "":
		dir, err := syntax.Quote(a.Dir, syntax.LangPOSIX)
		if err != nil {
			dir = a.Dir
		}
		o.Resume = "SANDBOXAGENT_STATE_DIR=" + dir + " " + o.Resume
	}
	if sub.part.limit == agent.LimitBudget {
		r.spent.Store(true)
		o.NoResult = true
	}
	if refusedByModel(o.Result, sub.part.failure) {
		var long *llm.WaitError
		if errors.As(sub.part.failure, &long) {
			r.p.pause.Store(int64(long.Wait))
		}
		r.refusal.Store(&o.Error)
		o.NoResult = true
	}
	if r.p.worker != nil && errors.Is(sub.part.failure, k8s.ErrQuota) {
		r.p.later.Store(true)
		o.NoResult = true
	}
	o.Repeatable = r.repeatable(o.Result, a.Task, sub.part)
	return o
}

// repeatable reports whether another attempt may succeed and finds nothing of this one: the
// environment or the model failed, and what the attempt has changed is gone, or it has called no
// tool. A patch that lacks unreadable files would lack them again.
func (r *batchRunner) repeatable(res event.Result, t batch.Task, a *part) bool {
	fresh := r.readOnly || a.isolated && !r.mounts && (!r.inPlace || t.Archive != "")
	if !fresh && res.ToolCalls > 0 || len(res.Disarmed) > 0 || errors.Is(a.failure, k8s.ErrPodField) {
		return false
	}
	var failed *llm.Error
	switch agent.Status(res.Status) {
	case agent.StatusEnvironmentError:
		return !errors.Is(a.failure, errUnreadable)
	case agent.StatusModelError:
		return errors.As(a.failure, &failed) && failed.Retryable()
	}
	return false
}

// refusedByModel reports whether the server of the model will refuse the other tasks, too: for the
// key, the quota, or a pause that is too long.
func refusedByModel(res event.Result, err error) bool {
	if agent.Status(res.Status) != agent.StatusModelError {
		return false
	}
	var long *llm.WaitError
	kind := llm.KindOf(err)
	return kind == llm.KindAuth || kind == llm.KindQuota || errors.As(err, &long)
}

// flagsOf returns the flags of the run of an attempt in a directory, which may be empty.
func (r *batchRunner) flagsOf(a *batch.Attempt, workdir string) []string {
	t := a.Task
	flags := slices.Clone(r.flags)
	if t.Model != "" && providerOf(t.Model) != providerOf(lastValue(flags, "model")) {
		flags = slices.DeleteFunc(flags, func(f string) bool { return flagName(f) == baseURLName })
	}
	set := func(name, value string) {
		if value != "" {
			flags = append(flags, "--"+name+"="+value)
		}
	}
	set("model", t.Model)
	set("image", t.Image)
	set("workdir", workdir)
	set("verify", t.Verify)
	set("timeout", t.Limits.Timeout)
	for name, n := range map[string]float64{
		"max-turns": float64(t.Limits.MaxTurns), "max-tool-rounds": float64(t.Limits.MaxToolRounds),
		"max-tokens": float64(t.Limits.MaxTokens), "max-cost": t.Limits.MaxCostUSD,
	} {
		if n > 0 {
			set(name, strconv.FormatFloat(n, 'f', -1, 64))
		}
	}
	for _, u := range t.Upload {
		set("upload", u)
	}
	set("output", formatJSON)
	if !r.readOnly {
		set("patch", filepath.Join(a.Dir, attemptPatch))
	}
	return flags
}

// track keeps the programs that run.
func (r *batchRunner) track(sub *program, running bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if running {
		r.running[sub] = true
	} else {
		delete(r.running, sub)
	}
}

// kill kills the processes of all open environments.
func (r *batchRunner) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all sync.WaitGroup
	for sub := range r.running {
		if kill := sub.kill.Load(); kill != nil {
			all.Go(*kill)
		}
	}
	all.Wait()
}

// mostNotes bounds the notes of attempts that the batch shows.
const mostNotes = 20

// note shows a note of an attempt, each text once.
func (r *batchRunner) note(text string) {
	r.mu.Lock()
	again := r.noted[text] || len(r.noted) == mostNotes
	r.noted[text] = r.noted[text] || !again
	r.mu.Unlock()
	if !again && r.p.worker == nil { // its output has the progress of the attempt
		r.show.notify(text)
	}
}

// consentOnce returns a function that asks the user once whether models may act without a sandbox,
// unless that is allowed. A refusal ends the batch.
func (r *batchRunner) consentOnce(allowed bool) func(context.Context, *environment) error {
	var once sync.Once
	var answer error
	return func(ctx context.Context, e *environment) error {
		once.Do(func() {
			if allowed {
				return
			}
			where := "the working directories of " + count(len(r.in.tasks), "task")
			r.show.pause(func() { answer = r.p.consent(ctx, false, "", e, where) })
			if answer != nil {
				r.cancel(answer)
			}
		})
		return answer
	}
}

// passphrase reads the passphrase of a key from the terminal, once for all tasks.
func (r *batchRunner) passphrase(ctx context.Context, file string) (text []byte, err error) {
	r.asking.Lock()
	defer r.asking.Unlock()
	if text, ok := r.passphrases[file]; ok {
		return text, nil
	}
	r.show.pause(func() { text, err = promptPassphrase(ctx, file) })
	if err == nil {
		r.passphrases[file] = text
	}
	return text, err
}

// quotaTime bounds the wait for room in a quota. That of a worker is short, since its own pod may
// take the room, and random, so that not all of them make room at once.
const (
	quotaTime                            = 24 * time.Hour
	minWorkerQuotaTime, workerQuotaRange = 20 * time.Second, time.Minute
)

// adapt makes a backend, of one attempt, that of a batch.
func (a *part) adapt(b backend) {
	switch b := b.(type) {
	case *k8sBackend:
		b.config.Parent, b.shared = a.runner.p.parent(), &a.runner.cluster
		b.config.WaitForQuota = quotaTime // other tasks end
		if a.runner.p.worker != nil {
			b.config.WaitForQuota = minWorkerQuotaTime + rand.N(workerQuotaRange)
		}
	case *localBackend:
		b.sandbox.Hide = append(b.sandbox.Hide, a.runner.in.dir) // the results of all tasks
	case *sshBackend:
		if b.target.Passphrase != nil {
			b.target.Passphrase = a.runner.passphrase
		}
	}
}

// openSessions returns the directory of the sessions of an attempt, after the user has allowed
// models to act in its environment.
func (a *part) openSessions(ctx context.Context, e *environment) (string, error) {
	if a.isolated = e.isolated; !a.isolated {
		if err := a.runner.consented(ctx, e); err != nil {
			return "", err
		}
	}
	dir := filepath.Join(a.attempt.Dir, attemptSessions)
	return dir, os.Mkdir(dir, 0o700)
}

// removeTree removes a directory, also one that commands have made read-only. What is left stays
// for the next start.
func removeTree(dir string) {
	if os.RemoveAll(dir) == nil {
		return
	}
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = os.Chmod(name, 0o700) //nolint:gosec // a directory of this program
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}

// unpack unpacks an archive, .tar or .tar.gz, to a new directory.
func unpack(ctx context.Context, archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("unpack the archive: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	if err := unpackTree(ctx, f, dir); err != nil {
		return fmt.Errorf("unpack %s: %w", archive, err)
	}
	return nil
}

// unpackTree unpacks an archive, which may be compressed, to a new directory.
func unpackTree(ctx context.Context, archive io.Reader, dir string) (err error) {
	in := bufio.NewReader(archive)
	var content io.Reader = in
	if magic, _ := in.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		if content, err = gzip.NewReader(in); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	e, err := local.New(local.Config{Dir: dir})
	if err != nil {
		return err
	}
	defer e.Close() //nolint:errcheck // no command has run in it
	return e.CopyIn(ctx, ".", content)
}
