package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sandboxagent/sandboxagent/env/k8s"
	"github.com/sandboxagent/sandboxagent/env/k8s/jobs"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/policy"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/batch"
)

const (
	// workArgument starts this program as the agent of a submitted batch. It is not for users.
	workArgument = "__work"
	// workVariable has the workOrder.
	workVariable = "SANDBOXAGENT_JOB_ORDER"
	// workRecord is the file with the workResult in what an agent stores.
	workRecord = "record.json"
	// maxWorkResult bounds what an agent stores of its attempt, compressed, in bytes.
	maxWorkResult = 16 << 20
	// maxPause bounds the pause that the server of a model may want, and maxPauses the time since the
	// submission in which an agent waits for it. After that it refuses all tasks.
	maxPause  = time.Hour
	maxPauses = 24 * time.Hour
)

// workResult is the record of a task, whose files were in Dir.
type workResult struct {
	Dir    string        `json:"dir"`
	Record *batch.Record `json:"record"`
}

// workSummary is what totals need of the record of a task, and of earlier attempts of its agent.
type workSummary struct {
	batch.Record
	Earlier []*batch.Record `json:"earlier,omitempty"`
}

// isWorker reports whether the program was started as the agent of a submitted batch.
func isWorker(args []string) bool {
	return len(args) == 2 && args[1] == workArgument && jobs.InPod()
}

// workInPod does one task of a submitted batch, in the pod of an agent, and stores the result. It
// returns the exit code for the Job.
func (p *program) workInPod(ctx context.Context) int {
	err := withCluster(ctx, k8s.Address{}, func(cluster *k8s.Cluster) error {
		w, err := jobs.OpenWorker(cluster)
		if err == nil {
			p.code, err = p.workOn(ctx, w)
		}
		return err
	})
	if err != nil {
		p.printLine(err.Error())
		return codeEnvironment
	}
	return p.code
}

func (p *program) workOn(ctx context.Context, w *jobs.Worker) (int, error) {
	before, err := w.Summary(ctx)
	if err != nil {
		return 0, err
	}
	if before != nil { // of a pod that has died after it stored the result
		return workCode(before)
	}
	var order workOrder
	var task workTask
	input, err := w.Input(ctx)
	if err == nil {
		err = errors.Join(json.Unmarshal([]byte(os.Getenv(workVariable)), &order),
			json.Unmarshal(input, &task), os.Unsetenv(workVariable))
	}
	if err != nil {
		return 0, fmt.Errorf("read the task: %w", err)
	}
	for _, f := range append(order.Files, task.Files...) {
		data, err := w.File(ctx, f.Name)
		if err == nil {
			err = f.write(ctx, data)
		}
		if err != nil {
			return 0, err
		}
	}
	if len(order.Rules) > 0 {
		p.handed = &policy.Policy{Rules: order.Rules}
	}
	p.worker = w
	out, tasks := filepath.Join(jobs.WorkDir, "out"), filepath.Join(jobs.WorkDir, "task.jsonl")
	text, err := task.file()
	if err == nil {
		err = os.WriteFile(tasks, text, 0o600)
	}
	empty := filepath.Join(jobs.WorkDir, "empty") // for a task without files
	if err == nil {
		err = os.MkdirAll(empty, 0o700)
	}
	if err != nil {
		return 0, err
	}
	args := append([]string{
		"sandboxagent", batchName, "--env=" + (&k8sBackend{}).name(), "--parallel=1", "--out=" + out,
		"--workdir=" + empty,
	}, order.Flags...)
	// The pod may end at any time: the run ends then, and its result is stored.
	ending := make(chan os.Signal, 1)
	signal.Notify(ending, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(ending)
	var said bytes.Buffer
	p.std.err = io.MultiWriter(p.std.err, &said)
	code := p.run(ctx, append(args, "--", tasks))
	for record, err := range batch.Results(out) {
		if err != nil {
			return 0, err
		}
		return p.storeWork(ctx, w, out, record)
	}
	return p.withoutResult(ctx, w, code, workEnd{order, out, task.Task, said.Bytes(), ending})
}

// workEnd is the end of the work on a task without a result.
type workEnd struct {
	order workOrder
	out   string
	task  batch.Task
	// said is what the program has written to standard error.
	said []byte
	// ending tells that the pod ends.
	ending <-chan os.Signal
}

// withoutResult returns the exit code for a task that has no result, after an exit code of batch.
func (p *program) withoutResult(
	ctx context.Context, w *jobs.Worker, code int, e workEnd,
) (int, error) {
	if p.later.Load() && time.Since(e.order.Submitted) <= maxPauses {
		p.printLine("a quota has no room for the sandbox: the agent makes room, and the task " +
			"starts again")
		return jobs.ExitLater, nil
	}
	switch code {
	case codeModel: // it refuses all tasks
		pause := time.Duration(p.pause.Load())
		if pause == 0 || pause > maxPause || time.Since(e.order.Submitted) > maxPauses {
			return jobs.ExitStop, nil
		}
		p.printLine(fmt.Sprintf("the server of the model wants a pause of %s, after which the task "+
			"starts again", pause))
		select {
		case <-time.After(pause):
		case <-e.ending:
		}
		return jobs.ExitLater, nil
	case codeUsage: // such as a model without a key
		return p.storeUsage(ctx, w, e.out, e.task, e.said)
	}
	return codeEnvironment, nil // to be tried again
}

// storeUsage stores the result of a task that cannot start. The last line of output tells why.
func (p *program) storeUsage(
	ctx context.Context, w *jobs.Worker, out string, t batch.Task, output []byte,
) (int, error) {
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	r := lostRecord(t, "")
	r.Status, r.ExitCode = string(statusUsage), codeUsage
	r.Error = strings.TrimPrefix(lines[len(lines)-1], "sandboxagent: ")
	dir := batch.AttemptDir(out, r)
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, attemptLog), output, 0o600)
	}
	if err != nil {
		return 0, err
	}
	return p.storeWork(ctx, w, out, r)
}

// workCode returns the exit code for the summary of a result.
func workCode(summary []byte) (int, error) {
	var r workSummary
	if err := json.Unmarshal(summary, &r); err != nil {
		return 0, fmt.Errorf("read the result: %w", err)
	}
	if r.Passed() {
		return codeDone, nil
	}
	return jobs.ExitFailed, nil
}

// storeWork stores the record of a task with the files of its attempt.
func (p *program) storeWork(
	ctx context.Context, w *jobs.Worker, out string, record *batch.Record,
) (int, error) {
	data, err := fitWork(ctx, batch.AttemptDir(out, record), record)
	if err != nil {
		return 0, err
	}
	s := workSummary{Record: *summaryOf(record, maxWorkError)}
	for r, err := range batch.Attempts(out) {
		if err != nil {
			return 0, err
		}
		s.Earlier = append(s.Earlier, summaryOf(r, maxEarlierError))
	}
	summary, err := json.Marshal(s)
	if err == nil {
		summary, err = w.Store(ctx, summary, data)
	}
	if err != nil {
		return 0, err
	}
	return workCode(summary)
}

// fitWork packs the files of an attempt for the cluster. What is too large loses the journal, and
// if that is not enough the patch, with which the task fails.
func fitWork(ctx context.Context, dir string, record *batch.Record) ([]byte, error) {
	data, err := packWork(ctx, dir, record)
	if errors.Is(err, errTooLarge) {
		err = addLine(filepath.Join(dir, attemptLog), fmt.Sprintf("the journal is left out: with it, "+
			"the result has more than %d MiB, compressed", maxWorkResult>>20))
		removeTree(filepath.Join(dir, attemptSessions))
		record.Journal, record.SessionDir = "", ""
		if err == nil {
			data, err = packWork(ctx, dir, record)
		}
	}
	if errors.Is(err, errTooLarge) { // another attempt would have the same
		record.Status, record.ExitCode = string(agent.StatusEnvironmentError), codeEnvironment
		record.Error = fmt.Sprintf("the patch is lost: the result has more than %d MiB, compressed; use "+
			"batch without submit", maxWorkResult>>20)
		record.Patch = ""
		if err = os.Remove(filepath.Join(dir, attemptPatch)); err == nil {
			data, err = packWork(ctx, dir, record)
		}
	}
	return data, err
}

// addLine adds a line to a file.
func addLine(file, line string) error {
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, line)
	return errors.Join(err, f.Close())
}

// packWork packs the directory of an attempt with its record. The error is errTooLarge for more
// than maxWorkResult.
func packWork(ctx context.Context, dir string, record *batch.Record) ([]byte, error) {
	text, err := json.Marshal(workResult{Dir: dir, Record: record})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, workRecord), text, 0o600)
	}
	if err != nil {
		return nil, err
	}
	e, err := local.New(local.Config{Dir: dir})
	if err != nil {
		return nil, err
	}
	defer e.Close() //nolint:errcheck // no command has run in it
	return archiveTree(ctx, e, maxWorkResult)
}

// summaryOf returns what totals need of a record, with an error of at most that many bytes.
func summaryOf(r *batch.Record, most int) *batch.Record {
	s := &batch.Record{
		TaskID: r.TaskID, Attempt: r.Attempt, Started: r.Started, Ended: r.Ended, OpenMS: r.OpenMS,
	}
	s.Status, s.ExitCode, s.Usage, s.CostUSD = r.Status, r.ExitCode, r.Usage, r.CostUSD
	s.ModelCalls, s.DurationMS = r.ModelCalls, r.DurationMS
	if s.Error = r.Error; len(s.Error) > most {
		s.Error = s.Error[:most]
	}
	s.Error = strings.ToValidUTF8(s.Error, "")
	return s
}

// maxWorkError and maxEarlierError bound the errors in a summary, in bytes: an object has at most
// 256 KiB of annotations, and a task up to maxSubmitRetries earlier attempts.
const (
	maxWorkError    = 2 << 10
	maxEarlierError = 512
)

// write writes the file to its path.
func (f workFile) write(ctx context.Context, data []byte) error {
	if f.Dir {
		return unpackTree(ctx, bytes.NewReader(data), f.Path)
	}
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o700); err != nil {
		return err
	}
	data, err := jobs.Decompress(data)
	if err != nil {
		return err
	}
	return os.WriteFile(f.Path, data, f.Mode)
}

// restore unpacks what an agent has stored into the empty directory of an attempt, and returns the
// record, which names the files there.
func (r workResult) restore(ctx context.Context, data []byte, dir string) (*batch.Record, error) {
	if err := unpackTree(ctx, bytes.NewReader(data), dir); err != nil {
		return nil, err
	}
	name := filepath.Join(dir, workRecord)
	text, err := readFile(name, maxWorkResult<<4)
	if err == nil {
		err = errors.Join(json.Unmarshal(text, &r), os.Remove(name))
	}
	if err == nil && r.Record == nil {
		err = fmt.Errorf("%s has no record", workRecord)
	}
	if err != nil {
		return nil, err
	}
	for _, file := range []*string{&r.Record.Patch, &r.Record.Journal, &r.Record.SessionDir} {
		rest, ok := strings.CutPrefix(*file, r.Dir+"/")
		if rest = filepath.FromSlash(rest); ok && filepath.IsLocal(rest) {
			*file = filepath.Join(dir, rest)
		} else {
			*file = "" // it is not here
		}
	}
	r.Record.Resume = "" // its flags are about the pod
	return r.Record, nil
}

// tee returns a writer for the progress of an attempt: in the pod of an agent it is the output,
// too.
func (p *program) tee(log io.Writer) io.Writer {
	if p.worker == nil {
		return log
	}
	return io.MultiWriter(log, p.std.err)
}

// parent returns the pod of the agent that the program is; zero elsewhere.
func (p *program) parent() k8s.PodID {
	return cmp.Or(p.worker, &jobs.Worker{}).Pod
}
