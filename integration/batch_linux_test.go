package integration_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
	"github.com/sandboxagent/sandboxagent/internal/race"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/batch"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

// batchModel is a server of a model that does the tasks of a batch: each has its ID as the prompt,
// and is done with one command, which writes the ID to a file.
type batchModel struct {
	*llmtest.Server
	// hold is the number of requests whose commands wait for a file go.
	hold int

	mu sync.Mutex
	// disturb, if not nil, is called before a request with the result of a command is answered:
	// while the environment of that run is there.
	disturb func()
	// attempts counts the first requests of runs by their task.
	attempts map[string]int
	requests int
	// waiting are closed when the server has got that many requests.
	waiting map[int][]chan struct{}
}

// newBatchModel starts the server. Fault, if not nil, returns what becomes of the n-th request.
func newBatchModel(t *testing.T, fault func(n int) llmtest.Fault) *batchModel {
	m := &batchModel{attempts: map[string]int{}, waiting: map[int][]chan struct{}{}}
	m.Server = llmtest.NewServer(t, func(r *llmtest.Request) llmtest.Reply {
		id := strings.TrimSpace(r.Messages[0].Text())
		first := len(results(r)) == 0
		m.mu.Lock()
		m.requests++
		n := m.requests
		if first {
			m.attempts[id]++
		}
		for at, reached := range m.waiting {
			if n >= at {
				for _, c := range reached {
					close(c)
				}
				delete(m.waiting, at)
			}
		}
		disturb := m.disturb
		m.mu.Unlock()
		if !first && disturb != nil {
			disturb()
		}
		reply := llmtest.Text("done")
		if first {
			// A new text in each attempt, and what the archive of a task has.
			reply = llmtest.Use(shell("echo " + id + " $$ $(date) >out.txt; " +
				"[ ! -e in.txt ] || cat in.txt >>out.txt"))
			if n <= m.hold {
				reply = llmtest.Use(shell("trap '' TERM; until [ -e go ]; do sleep 0.05; done"))
			}
		}
		if fault != nil {
			reply.Fault = fault(n)
		}
		return reply
	})
	return m
}

// setDisturb has the server call f at each request but the first one of an attempt.
func (m *batchModel) setDisturb(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disturb = f
}

// counts returns the attempts at each task.
func (m *batchModel) counts() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.attempts)
}

// after returns a channel that is closed when the server has got n requests more.
func (m *batchModel) after(n int) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	reached := make(chan struct{})
	m.waiting[m.requests+n] = append(m.waiting[m.requests+n], reached)
	return reached
}

// batchProof is a batch whose program, and some of its environments, are killed.
type batchProof struct {
	tasks, kills int
	// task returns more fields of the n-th task, as JSON; nil gives each an archive.
	task func(n int) string
	// command makes an execution of the program in a directory.
	command func(dir string, args ...string) *exec.Cmd
	flags   []string
	// victims is the number of attempts that lose their environment. list lists environments, and
	// remove removes one.
	victims int
	list    func(ctx context.Context) ([]string, error)
	remove  func(ctx context.Context, id string) error
	// none checks that no environment is left.
	none func()
}

// batchRecords returns the results of a batch by task, each of which must have one at most.
func batchRecords(t *testing.T, dir string) map[string]*batch.Record {
	t.Helper()
	found := map[string]*batch.Record{}
	for r, err := range batch.Results(dir) {
		if err != nil {
			t.Fatal(err)
		}
		if found[r.TaskID] != nil {
			t.Errorf("two results of %s", r.TaskID)
		}
		found[r.TaskID] = r
	}
	return found
}

// writeTasks writes a file of n tasks and returns its name.
func writeTasks(t testing.TB, dir string, n int, more func(int) string) string {
	t.Helper()
	var text strings.Builder
	for i := range n {
		fields := ""
		if more != nil {
			fields = "," + more(i)
		}
		fmt.Fprintf(&text, `{"id":"t%d","prompt":"t%d"%s}`+"\n", i, i, fields)
	}
	writeTree(t, dir, map[string]string{"tasks.jsonl": text.String()})
	return filepath.Join(dir, "tasks.jsonl")
}

// prove runs the batch again and again until all tasks have a result: the program is killed after a
// random number of requests to the model, but the last time. No task with a result runs again.
func (b batchProof) prove(t *testing.T) {
	m := newBatchModel(t, nil)
	dir, task := t.TempDir(), b.task
	if task == nil {
		archive := strconv.Quote(oneFileArchive(t))
		task = func(int) string { return `"archive":` + archive }
	}
	writeTasks(t, dir, b.tasks, task)
	args := slices.Concat([]string{
		"batch", "--yes", "--parallel=8", "--retries=5", "--model=openai/gpt-5.2",
		"--base-url=" + m.URL(), "tasks.jsonl",
	}, b.flags)
	out := filepath.Join(dir, "tasks.results")
	start := func() (cmd *exec.Cmd, done <-chan error, output *lockedBuffer) {
		cmd, output = b.command(dir, args...), new(lockedBuffer)
		cmd.Env = append(cmd.Env, "OPENAI_API_KEY="+m.Key())
		cmd.Stdout, cmd.Stderr = output, output
		cmd.WaitDelay = 10 * time.Second
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		return cmd, ended, output
	}
	done := map[string]int{} // the attempts at tasks that have a result
	check := func() {
		counts := m.counts()
		for id := range batchRecords(t, out) {
			if _, ok := done[id]; !ok {
				done[id] = counts[id]
			}
		}
		for id, n := range done {
			if counts[id] != n {
				t.Errorf("%s has a result of %d attempts, and ran %d times", id, n, counts[id])
			}
		}
	}
	for range b.kills {
		cmd, ended, output := start()
		each := 3 * b.tasks / (2 * (b.kills + 1)) // so that some of two requests a task are left
		select {
		case <-m.after(1 + rand.IntN(max(each, 1))):
			time.Sleep(rand.N(100 * time.Millisecond)) // it is killed between requests, too
			_ = cmd.Process.Kill()
			<-ended //nolint:errcheck // it was killed
		case err := <-ended:
			t.Fatalf("it ended before it was killed: %v: %s", err, output)
		}
		check()
	}
	lost := func() int {
		return countAttempts(t, out, agent.StatusEnvironmentError)
	}
	b.killSome(t, m, lost)
	_, ended, output := start()
	if err := <-ended; err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if n := lost(); n < b.victims {
		t.Errorf("%d attempts have lost their environment, not %d", n, b.victims)
	}
	check()
	records := batchRecords(t, out)
	if len(records) != b.tasks || len(done) != b.tasks {
		t.Errorf("%d results of %d tasks", len(records), b.tasks)
	}
	for id, r := range records {
		patch, err := os.ReadFile(r.Patch)
		want := `\n\+` + id + ` `
		if b.task == nil { // nothing of an earlier attempt is left
			want = `@@ -0,0 \+1,2 @@\n\+` + id + ` .*\n\+in\n`
		}
		if err != nil || !r.Passed() || !regexp.MustCompile(want).Match(patch) {
			t.Errorf("%s: %+v, %v, %s", id, r, err, patch)
		}
		if n := m.counts()[id]; n > r.Attempt {
			t.Errorf("%s ran %d times in %d attempts", id, n, r.Attempt)
		}
		if _, err := os.Stat(r.Journal); err != nil || !strings.HasPrefix(r.Journal, out) {
			t.Errorf("%s: journal %s: %v", id, r.Journal, err)
		}
	}
	b.none()
}

// killSome has environments killed from now on, until as many attempts as it has victims are lost:
// one that is killed may be at its end.
func (b batchProof) killSome(t *testing.T, m *batchModel, lost func() int) {
	if b.victims == 0 {
		return
	}
	old, err := b.list(t.Context()) // of a program that was killed
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	left := 4 * b.victims
	m.setDisturb(func() {
		mu.Lock()
		defer mu.Unlock()
		if left == 0 || lost() >= b.victims {
			return
		}
		found, err := b.list(t.Context())
		found = slices.DeleteFunc(found, func(id string) bool { return slices.Contains(old, id) })
		if err == nil && len(found) > 0 {
			left--
			err = b.remove(t.Context(), found[rand.IntN(len(found))])
		}
		if err != nil {
			t.Log(err)
		}
	})
}

// countAttempts returns the number of attempts with a status that gave no result.
func countAttempts(t *testing.T, dir string, status agent.Status) (n int) {
	t.Helper()
	for r, err := range batch.Attempts(dir) {
		if err != nil {
			t.Error(err)
		} else if r.Status == string(status) {
			n++
		}
	}
	return n
}

// oneFileArchive writes an archive with one file and returns its name.
func oneFileArchive(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: "in.txt", Mode: 0o644, Size: 3})
	if err == nil {
		_, err = w.Write([]byte("in\n"))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeTree(t, dir, map[string]string{"repo.tar": b.String()})
	return filepath.Join(dir, "repo.tar")
}

// scaled returns an amount of work: a part of it in short tests and with the race detector.
func scaled(n, short int) int {
	if testing.Short() || race.Enabled() {
		return short
	}
	return n
}

// programIn returns a function that makes executions of the program with more variables.
func programIn(t testing.TB, vars ...string) func(dir string, args ...string) *exec.Cmd {
	state := t.TempDir()
	return func(dir string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), command(t), args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), append(vars, "SANDBOXAGENT_STATE_DIR="+state)...)
		return cmd
	}
}

// TestBatch has the tasks of a batch on this machine, each with an archive.
func TestBatch(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	programs := watchFor(t, cache)
	batchProof{
		tasks: scaled(1000, 60), kills: scaled(20, 5),
		command: programIn(t, "XDG_CACHE_HOME="+cache),
		none: func() {
			await(t, "the end of all processes", func() bool { return !running(cache) })
			programs.gone()
			left, err := filepath.Glob(filepath.Join(cache, "sandboxagent", "batch", "*"))
			if err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		},
	}.prove(t)
}

// TestBatchOnDocker has a batch in containers, some of which are killed.
func TestBatchOnDocker(t *testing.T) {
	t.Parallel()
	d := sharedDocker(t)
	mark := newMark()
	batchProof{
		tasks: scaled(60, 16), kills: scaled(3, 1),
		command: func(dir string, args ...string) *exec.Cmd {
			return d.command(t, dir, mark, args...)
		},
		victims: scaled(2, 1),
		list: func(ctx context.Context) (ids []string, err error) {
			found, err := d.containers(ctx, mark)
			for _, line := range found {
				id, _, _ := strings.Cut(line, " ")
				ids = append(ids, id)
			}
			return ids, err
		},
		remove: func(ctx context.Context, id string) error {
			return d.api.ContainerRemove(ctx, id, container.RemoveOptions{Force: true})
		},
		none: func() {
			var left []string
			var err error
			defer func() {
				if len(left) > 0 || err != nil {
					t.Errorf("left: %q, %v", left, err)
				}
			}()
			await(t, "the end of all containers", func() bool {
				left, err = d.containers(t.Context(), mark)
				return err == nil && len(left) == 0
			})
		},
	}.prove(t)
}

// TestBatchImages has tasks in images of their own.
func TestBatchImages(t *testing.T) {
	t.Parallel()
	d, mark, dir, archive := sharedDocker(t), newMark(), t.TempDir(), oneFileArchive(t)
	images := []string{daemons.Debian, daemons.Busybox}
	writeTasks(t, dir, len(images), func(n int) string {
		return fmt.Sprintf(`"archive":%q,"image":%q`, archive, images[n])
	})
	writeTree(t, dir, map[string]string{"model.yaml": `turns:
  - calls:
      - tool: shell
        args: {command: "cat in.txt /etc/debian_version >image.txt || echo other >>image.txt"}
  - text: done
`})
	got := finish(t, d.command(t, dir, mark, "batch", "--image="+daemons.Empty,
		"--model=script:model.yaml", "tasks.jsonl"))
	if got.code != 0 {
		t.Fatalf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}
	for id, r := range batchRecords(t, filepath.Join(dir, "tasks.results")) {
		patch, err := os.ReadFile(r.Patch)
		if err != nil || bytes.Contains(patch, []byte("\n+other\n")) != (id == "t1") ||
			!bytes.Contains(patch, []byte("\n+in\n")) {
			t.Errorf("%s has changed %s, %v", id, patch, err)
		}
	}
}

// TestBatchOnK8s has a batch in pods, some of which are killed.
func TestBatchOnK8s(t *testing.T) {
	t.Parallel()
	k := sharedKube(t)
	mark := newMark()
	label := markLabel + "=" + mark
	batchProof{
		tasks: scaled(40, 8), kills: scaled(2, 1),
		command: func(dir string, args ...string) *exec.Cmd {
			return k.command(t, dir, mark, args...)
		},
		flags:   []string{"--image=" + daemons.Debian, "--helper-image=" + daemons.Helper},
		victims: scaled(2, 1),
		list: func(ctx context.Context) ([]string, error) {
			names, err := daemons.Kubectl(ctx, k.kubeconfig, "", "get", "pods", "-l", label, "-o", "name")
			return strings.Fields(names), err
		},
		remove: func(ctx context.Context, id string) error {
			_, err := daemons.Kubectl(ctx, k.kubeconfig, "", "delete", id, "--grace-period=0", "--force",
				"--wait=false")
			return err
		},
		none: func() { k.awaitNone(t, mark) },
	}.prove(t)
}

// TestBatchOverSSH has a batch on a host, each task in a directory of its own.
func TestBatchOverSSH(t *testing.T) {
	t.Parallel()
	s := sshd(t, daemons.SSHDConfig{})
	dir := t.TempDir()
	helpers := watchFor(t, dir)
	batchProof{
		tasks: scaled(20, 8), kills: scaled(2, 1),
		task: func(n int) string {
			name := filepath.Join(dir, strconv.Itoa(n))
			if err := os.Mkdir(name, 0o700); err != nil {
				t.Error(err)
			}
			return `"workdir":` + strconv.Quote(name)
		},
		command: programIn(t), flags: hostFlags(s),
		none: func() {
			await(t, "the end of all helpers", func() bool { return !running(dir) })
			helpers.gone()
		},
	}.prove(t)
}

// TestBatchHidesResults has tasks that look for the results of others in a directory that they may
// change, and find the file beside the results only.
func TestBatchHidesResults(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("bwrap"); err != nil {
		t.Skip("needs bubblewrap")
	}
	dir, archive := t.TempDir(), oneFileArchive(t)
	out := filepath.Join(dir, "tasks.results")
	writeTasks(t, dir, 2, func(int) string { return `"archive":` + strconv.Quote(archive) })
	writeTree(t, dir, map[string]string{"beside.txt": "beside\n", "model.yaml": fmt.Sprintf(`turns:
  - calls:
      - tool: shell
        args:
          command: |
            cat %s/beside.txt >seen.txt
            cat %s/results.jsonl >>seen.txt 2>/dev/null
            ls %[2]s/tasks >>seen.txt 2>/dev/null
            true
  - text: done
`, dir, out)})
	run := programIn(t, "XDG_CACHE_HOME="+t.TempDir())
	got := finish(t, run(dir, "batch", "--parallel=1", "--allow-write="+dir,
		"--model=script:model.yaml", "tasks.jsonl"))
	if got.code != 0 {
		t.Fatalf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
	}
	for id, r := range batchRecords(t, out) {
		patch, err := os.ReadFile(r.Patch)
		if err != nil || !bytes.HasSuffix(patch, []byte("@@ -0,0 +1 @@\n+beside\n")) {
			t.Errorf("%s has seen %s, %v", id, patch, err)
		}
	}
}

// TestBatchTraffic has a server of the model that rejects requests and fails in bursts. All tasks
// pass, and no request comes in the time in which the server wants none but those under way.
func TestBatchTraffic(t *testing.T) {
	t.Parallel()
	const parallel, pause = 8, 2 * time.Second
	var mu sync.Mutex
	var until time.Time
	early := 0
	m := newBatchModel(t, func(n int) llmtest.Fault {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		if now.Before(until) {
			early++
		}
		switch {
		case n >= 20 && n < 30, n >= 60 && n < 63:
			if until.Before(now) {
				until = now.Add(pause)
			}
			return llmtest.Fault{
				Status: http.StatusTooManyRequests,
				Header: http.Header{"Retry-After": {strconv.Itoa(int(pause.Seconds()))}},
			}
		case n >= 40 && n < 50:
			return llmtest.Fault{Status: http.StatusInternalServerError}
		}
		return llmtest.Fault{}
	})
	dir := t.TempDir()
	n := 40
	writeTasks(t, dir, n, nil)
	run := programIn(t)
	cmd := run(dir, "batch", "--read-only", "--workdir="+t.TempDir(), "--json",
		"--parallel="+strconv.Itoa(parallel), "--model=openai/gpt-5.2", "--base-url="+m.URL(),
		"tasks.jsonl")
	cmd.Env = append(cmd.Env, "OPENAI_API_KEY="+m.Key())
	got := finish(t, cmd)
	var totals struct{ Passed, Repeated int }
	if err := json.Unmarshal([]byte(got.stdout), &totals); err != nil || got.code != 0 ||
		totals.Passed != n || totals.Repeated > 0 {
		t.Errorf("exit code %d, %v: %s%s", got.code, err, got.stdout, got.stderr)
	}
	mu.Lock()
	defer mu.Unlock()
	// Of each burst only those that were under way at its first rejection come too early.
	if early > 2*(parallel-1) {
		t.Errorf("%d requests came in a time in which the server wanted none", early)
	}
}

// TestBatchInterrupted has signals for a batch: one lets the tasks that run end, two abort them,
// and three kill their processes.
func TestBatchInterrupted(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		signal syscall.Signal
		times  int
		code   int
		done   int
	}{
		{"drain", syscall.SIGINT, 1, 130, 3},
		{"abort", syscall.SIGINT, 2, 130, 0},
		{"kill", syscall.SIGINT, 3, 130, 0},
		{"terminate", syscall.SIGTERM, 1, 143, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := newBatchModel(t, nil)
			m.hold = 3
			dir, cache := t.TempDir(), t.TempDir()
			archive := oneFileArchive(t)
			writeTasks(t, dir, 9, func(int) string { return `"archive":` + strconv.Quote(archive) })
			run := programIn(t, "XDG_CACHE_HOME="+cache)
			args := []string{
				"batch", "--yes", "--parallel=3", "--model=openai/gpt-5.2", "--base-url=" + m.URL(),
				"tasks.jsonl",
			}
			start, programs := m.after(3), watchFor(t, cache)
			cmd, output := run(dir, args...), new(lockedBuffer)
			cmd.Env = append(cmd.Env, "OPENAI_API_KEY="+m.Key())
			cmd.Stdout, cmd.Stderr = output, output
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			<-start
			for i := range tt.times {
				err := cmd.Process.Signal(tt.signal)
				if err != nil && (i < 2 || !errors.Is(err, os.ErrProcessDone)) {
					t.Fatal(err)
				}
				if i == 0 && tt.signal == syscall.SIGINT {
					await(t, "the note", func() bool {
						return strings.Contains(output.String(), "no task starts any more; ^C again aborts")
					})
				}
			}
			if tt.done > 0 {
				dirs, err := filepath.Glob(filepath.Join(cache, "sandboxagent", "batch", "*", "t*"))
				if err != nil || len(dirs) != tt.done {
					t.Errorf("the directories of the tasks are %v, %v", dirs, err)
				}
				for _, dir := range dirs {
					writeTree(t, dir, map[string]string{"go": ""})
				}
			}
			_ = cmd.Wait()
			records := batchRecords(t, filepath.Join(dir, "tasks.results"))
			if code := cmd.ProcessState.ExitCode(); code != tt.code || len(records) != tt.done {
				t.Errorf("exit code %d, %d results: %s", code, len(records), output)
			}
			await(t, "the end of all processes", func() bool { return !running(cache) })
			programs.gone()
			noneLeft := func() {
				left, err := filepath.Glob(filepath.Join(cache, "sandboxagent", "batch", "*"))
				if err != nil || len(left) > 0 {
					t.Errorf("left: %v, %v", left, err)
				}
			}
			if tt.times < 3 { // else the next start removes the directories
				noneLeft()
			}
			cmd = run(dir, args...)
			cmd.Env = append(cmd.Env, "OPENAI_API_KEY="+m.Key())
			if got := finish(t, cmd); got.code != 0 {
				t.Errorf("exit code %d: %s%s", got.code, got.stdout, got.stderr)
			}
			noneLeft()
			for id, n := range m.counts() {
				if records[id] != nil && n != 1 {
					t.Errorf("%s ran %d times", id, n)
				}
			}
		})
	}
}

// TestBatchMemory measures the program when a batch is at its second quarter and at its last one,
// at each request: the most memory and descriptors stay as they are.
func TestBatchMemory(t *testing.T) {
	t.Parallel()
	m := newBatchModel(t, nil)
	n, dir, cache := scaled(1000, 80), t.TempDir(), t.TempDir()
	archive := strconv.Quote(oneFileArchive(t))
	writeTasks(t, dir, n, func(int) string { return `"archive":` + archive })
	cmd := programIn(t, "XDG_CACHE_HOME="+cache)(dir, "batch", "-q", "--yes", "--parallel=8",
		"--model=openai/gpt-5.2", "--base-url="+m.URL(), "tasks.jsonl")
	cmd.Env = append(cmd.Env, "OPENAI_API_KEY="+m.Key())
	output := new(lockedBuffer)
	cmd.Stdout, cmd.Stderr = output, output
	var mu sync.Mutex
	done := 0
	var most [4]struct{ kib, descriptors int } // in each quarter
	started := make(chan struct{})
	m.setDisturb(func() {
		<-started
		mu.Lock()
		defer mu.Unlock()
		kib, descriptors, err := resourcesOf(cmd.Process.Pid)
		if err != nil {
			t.Error(err)
		}
		q := &most[min(4*done/n, 3)]
		q.kib, q.descriptors = max(q.kib, kib), max(q.descriptors, descriptors)
		done++
	})
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	close(started)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
	t.Logf("the most KiB and descriptors of each quarter: %v", most)
	before, after := most[1], most[3]
	if done < n || after.kib > before.kib+16<<10 || after.descriptors > before.descriptors+16 {
		t.Errorf("the most KiB and descriptors of each quarter of %d tasks: %v", done, most)
	}
}

// resourcesOf returns the memory of a process, and its open descriptors.
func resourcesOf(pid int) (kib, descriptors int, err error) {
	proc := fmt.Sprintf("/proc/%d/", pid)
	status, err := os.ReadFile(proc + "status")
	if err != nil {
		return 0, 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		return 0, 0, err
	}
	entries, err := os.ReadDir(proc + "fd")
	return kib, len(entries), err
}
