package envtest

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
)

func streamCases() []testCase {
	return []testCase{
		{name: "separate", rule: ruleExact, run: streamSeparate},
		{name: "bytes_exact", rule: ruleExact, run: streamBytes},
		{name: "byte_by_byte", rule: ruleExact, run: streamByteByByte},
		{name: "order", rule: ruleExact, run: streamOrder},
		{name: "both_flooded", rule: ruleExact, run: streamFlood},
		{name: "discarded", rule: ruleExact, run: streamDiscarded},
		{name: "streamed_while_running", rule: ruleMemory, run: streamLive},
		{name: "huge_output_bounded_memory", rule: ruleMemory, run: streamHuge, alone: true},
		{name: "same_writer", rule: ruleWriters, run: streamSameWriter},
		{name: "writers_that_cannot_be_compared", rule: ruleWriters, run: streamUncomparable},
		{name: "no_call_after_return", rule: ruleWriters, run: streamNoLateCall},
		{name: "writer_error", rule: ruleWriterError, run: streamWriterError},
		{name: "slow_writer_gets_everything", rule: ruleDelivered, run: streamSlowWriter},
	}
}

// allBytes holds every byte value.
var allBytes = func() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}()

// octal returns s as the format of a printf of the shell, so that a command makes the bytes.
func octal(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, `\%03o`, s[i])
	}
	return b.String()
}

func streamSeparate(c *caseT) {
	r := c.exec(c.script(`echo foo; echo baz >&2; echo bar; exit 3`))
	c.wantExit("a command that writes to both", r, 3)
	c.equal("stdout", r.stdout, "foo\nbar\n")
	c.equal("stderr", r.stderr, "baz\n")
	r = c.exec(c.script(`echo only >&2`))
	c.equal("stdout of a command that writes to stderr", r.stdout, "")
	c.equal("stderr", r.stderr, "only\n")
}

func streamBytes(c *caseT) {
	for what, s := range map[string]string{
		"all byte values": allBytes, "CRLF": "a\r\nb\r\n\r", "no newline at the end": "last",
		"invalid UTF-8": "\xc3\x28\xff\xfe\xed\xa0\x80",
		"only newlines": "\n\n\n", "a NUL at the end": "x\x00", "unicode": "café résumé €100 中文 😀",
		"a terminal escape": "\x1b]0;title\x07\x1b[2J", "a byte order mark": "\xef\xbb\xbftext",
	} {
		r := c.exec(c.script(`printf "$1"; printf "$1" >&2`, octal(s)))
		c.wantExit(what, r, 0)
		c.equal(what+" on stdout", r.stdout, s)
		c.equal(what+" on stderr", r.stderr, s)
	}
}

func streamByteByByte(c *caseT) {
	const text = "añ€😀\r\n"
	var script strings.Builder
	for i := range len(text) {
		fmt.Fprintf(&script, "printf '%s'; printf '%s' >&2; ", octal(text[i:i+1]), octal(text[i:i+1]))
	}
	r := c.exec(c.script(`i=0; while [ $i -lt 200 ]; do ` + script.String() + ` i=$((i+1)); done`))
	c.equal("stdout", r.stdout, strings.Repeat(text, 200))
	c.equal("stderr", r.stderr, strings.Repeat(text, 200))
}

func streamOrder(c *caseT) {
	r := c.exec(c.script(`i=0; while [ $i -lt 5000 ]; do echo $i; echo e$i >&2; i=$((i+1)); done`))
	var stdout, stderr strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&stdout, "%d\n", i)
		fmt.Fprintf(&stderr, "e%d\n", i)
	}
	c.equal("stdout", r.stdout, stdout.String())
	c.equal("stderr", r.stderr, stderr.String())
}

func streamFlood(c *caseT) {
	c.tool("head")
	n := c.size(16<<20, 4<<20)
	r := c.exec(c.script(`head -c "$1" /dev/zero & head -c "$1" /dev/zero >&2; wait`, fmt.Sprint(n)))
	c.wantExit("a command that floods both streams", r, 0)
	if len(r.stdout) != n || len(r.stderr) != n {
		c.errorf("%d bytes of stdout and %d of stderr arrived, want %d of each", len(r.stdout),
			len(r.stderr), n)
	}
}

func streamDiscarded(c *caseT) {
	c.tool("head")
	cmd := c.script(`head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2; exit 3`)
	res, err := c.e.Exec(c.ctx, cmd)
	c.wantExit("a command without writers", ran{Result: res, err: err}, 3)
}

// streamLive lets the command end only after its first output has arrived.
func streamLive(c *caseT) {
	release, seen := c.name("release"), make(chan struct{})
	cmd := c.script(`echo first
while ! test -f "$1"; do sleep 0.05 2>/dev/null || sleep 1; done; echo second`, c.abs("release"))
	var out strings.Builder
	var once sync.Once
	cmd.Stdout = writerFunc(func(p []byte) (int, error) {
		once.Do(func() { close(seen) })
		return out.Write(p)
	})
	result := make(chan ran, 1)
	go func() { result <- c.exec(cmd) }()
	select {
	case <-seen:
	case <-time.After(c.patience()):
		c.errorf("no output arrived while the command ran")
	}
	c.write(release, "")
	c.wantExit("the command", <-result, 0)
	c.equal("stdout", out.String(), "first\nsecond\n")
}

func streamHuge(c *caseT) {
	c.tool("head")
	total := int64(c.size(512<<20, 256<<20))
	before := heap()
	// Other tests of the process use memory at times; output that is held stays.
	lowest := uint64(math.MaxUint64)
	var n, since int64
	cmd := c.script(`head -c "$1" /dev/zero`, fmt.Sprint(total))
	cmd.Stdout = writerFunc(func(p []byte) (int, error) {
		n += int64(len(p))
		if since += int64(len(p)); since >= 32<<20 {
			since = 0
			if n > total/2 {
				lowest = min(lowest, heap())
			}
		}
		return len(p), nil
	})
	r := c.exec(cmd)
	c.wantExit("a command with huge output", r, 0)
	if n != total {
		c.errorf("%d bytes arrived, want %d", n, total)
	}
	if limit := before + uint64(total)/4; lowest > limit {
		c.errorf("%d MiB of output made the heap grow from %d to %d MiB", total>>20, before>>20,
			lowest>>20)
	}
}

// heap returns the bytes that are in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// strictWriter notices calls that overlap, and calls after Exec has returned.
type strictWriter struct {
	busy, returned   atomic.Bool
	overlapped, late atomic.Bool
	mu               sync.Mutex
	got              strings.Builder
	first            sync.Once
	linger           time.Duration // how long the first call takes
}

func (w *strictWriter) Write(p []byte) (int, error) {
	if !w.busy.CompareAndSwap(false, true) {
		w.overlapped.Store(true)
	} else {
		defer w.busy.Store(false)
	}
	if w.returned.Load() {
		w.late.Store(true)
	}
	w.first.Do(func() { time.Sleep(w.linger) })
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.got.Write(p)
}

// streamSameWriter has a writer that is still busy with one stream when the other has something for
// it.
func streamSameWriter(c *caseT) {
	w := &strictWriter{linger: time.Second / 2}
	cmd := c.script(`(i=0; while [ $i -lt 300 ]; do echo o; i=$((i+1)); done) &
i=0; while [ $i -lt 300 ]; do echo e >&2; i=$((i+1)); done; wait`)
	cmd.Stdout, cmd.Stderr = w, w
	c.wantExit("a command whose streams go to one writer", c.exec(cmd), 0)
	if w.overlapped.Load() {
		c.errorf("stdout and stderr are the same writer, and calls of it overlapped")
	}
	if o, e := strings.Count(w.got.String(), "o"), strings.Count(w.got.String(), "e"); o != 300 ||
		e != 300 || w.got.Len() != 1200 {
		c.errorf("%d lines of stdout and %d of stderr arrived, %d bytes; want 300, 300 and 1200", o, e,
			w.got.Len())
	}
}

// streamUncomparable passes writers of a type that cannot be compared with ==, which panics for
// interface values.
func streamUncomparable(c *caseT) {
	var out, errs strings.Builder
	cmd := c.script(`echo out; echo err >&2`)
	cmd.Stdout, cmd.Stderr = writerFunc(out.Write), writerFunc(errs.Write)
	c.wantExit("a command", c.exec(cmd), 0)
	c.equal("stdout", out.String(), "out\n")
	c.equal("stderr", errs.String(), "err\n")
}

func streamNoLateCall(c *caseT) {
	var out, errs strictWriter
	cmd := c.script(`(i=0; while [ $i -lt 30 ]
do echo out; echo err >&2; sleep 0.1 2>/dev/null || sleep 1; i=$((i+1)); done; : >"$1") &
exit 0`, c.abs("done"))
	cmd.Stdout, cmd.Stderr = &out, &errs
	r := c.exec(cmd)
	out.returned.Store(true)
	errs.returned.Store(true)
	c.wantExit("a command with a child in the background", r, 0)
	c.poll("the child to have written all its output", func() bool {
		_, err := c.e.Stat(c.ctx, c.name("done"))
		return err == nil
	})
	if out.late.Load() || errs.late.Load() {
		c.errorf("a writer was called after Exec had returned")
	}
}

func streamWriterError(c *caseT) {
	broken := errors.New("the writer is full")
	calls := 0
	cmd := c.script(`echo first; i=0; while [ $i -lt 20000 ]; do echo more; i=$((i+1)); done
echo err >&2; : >"$1"; exit 3`, c.abs("end"))
	cmd.Stdout = writerFunc(func([]byte) (int, error) {
		calls++
		return 0, fmt.Errorf("wrapped: %w", broken)
	})
	r := c.exec(cmd)
	c.is("a command whose output cannot be written", r.err, broken)
	if r.ExitCode != 3 || r.Signal != "" {
		c.errorf("the command did not run on to its end: %+v, want exit code 3", r.Result)
	}
	if calls != 1 {
		c.errorf("the writer was called %d times, want 1: not again after its error", calls)
	}
	c.equal("stderr, whose writer works", r.stderr, "err\n")
	if _, err := c.e.Stat(c.ctx, c.name("end")); err != nil {
		c.errorf("the command did not run on to its end: %v", err)
	}
}

// streamSlowWriter leaves more in the pipe, when the command exits, than the writer takes within
// the time that Exec may wait for end of file.
func streamSlowWriter(c *caseT) {
	c.tool("head")
	const size = 60000 // Less than a pipe holds, more than one read takes.
	var got int
	pause := env.DrainTime * 5 / 4
	cmd := c.script(`head -c "$1" /dev/zero`, fmt.Sprint(size))
	cmd.Stdout = writerFunc(func(p []byte) (int, error) {
		time.Sleep(pause)
		pause = 0
		got += len(p)
		return len(p), nil
	})
	c.wantExit("a command with a slow writer", c.exec(cmd), 0)
	if got != size {
		c.errorf("%d of %d bytes arrived at a slow writer", got, size)
	}
}
