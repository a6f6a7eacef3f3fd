package attack_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/integration/daemons"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
)

const (
	// secret is the key of the model, which no other server may get, and no output may have. All
	// secrets of the other attacks are the same.
	secret = "sk-attack-0123456789abcdef"
	// maxPeak is the memory that the program may use, in bytes, whatever it is sent.
	maxPeak = 300 << 20
	// escapes are obeyed by a terminal.
	escapes = "\x1b]0;title\x07\x1b[2J\u009b2J\r\b"
)

// answer writes the answer to request number n of a run.
type answer func(w http.ResponseWriter, n int)

// event is an event of Chat Completions.
func event(delta string) string {
	return `data: {"choices":[{"index":0,"delta":{` + delta + "}}]}\n\n"
}

// finish ends an answer.
func finish(reason string) string {
	return `data: {"choices":[{"index":0,"delta":{},"finish_reason":"` + reason +
		"\"}]}\n\ndata: [DONE]\n\n"
}

// quoted is a JSON string. It leaves invalid UTF-8 as it is.
func quoted(s string) string {
	if !utf8.ValidString(s) {
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
	}
	data, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// call is a tool call; args are pairs of names and values.
func call(index int, id, name string, args ...string) string {
	var fields []string
	for i := 0; i < len(args); i += 2 {
		fields = append(fields, quoted(args[i])+":"+quoted(args[i+1]))
	}
	return piece(index, id, name, "{"+strings.Join(fields, ",")+"}")
}

// piece is a part of a tool call.
func piece(index int, id, name, args string) string {
	return event(fmt.Sprintf(`"tool_calls":[{"index":%d,"id":%s,"type":"function","function":`+
		`{"name":%s,"arguments":%s}}]`, index, quoted(id), quoted(name), quoted(args)))
}

// stream answers the first request with events, and later ones with a text.
func stream(events ...string) answer {
	return func(w http.ResponseWriter, n int) {
		if n > 0 {
			events = []string{event(`"content":"the end"`), finish("stop")}
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, strings.Join(events, ""))
	}
}

// page answers all requests without a stream.
func page(status int, kind, body string, header ...string) answer {
	return func(w http.ResponseWriter, _ int) {
		w.Header().Set("Content-Type", kind)
		for i := 0; i < len(header); i += 2 {
			w.Header()[header[i]] = []string{header[i+1]}
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// endless writes a start, and then text until the program leaves, or has got far too much.
func endless(start, text string, header ...string) answer {
	return func(w http.ResponseWriter, _ int) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := 0; i < len(header); i += 2 {
			w.Header()[header[i]] = []string{header[i+1]}
		}
		flood(w, start, text)
	}
}

func flood(w io.Writer, start, text string) {
	_, err := io.WriteString(w, start)
	for sent := 0; err == nil && sent < 2*maxPeak; sent += len(text) {
		_, err = io.WriteString(w, text)
	}
}

// raw is endless on the connection itself.
func raw(start, text string) answer {
	return func(w http.ResponseWriter, _ int) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close() //nolint:errcheck // it may be closed
		if text == "" {
			_, _ = io.WriteString(conn, start)
			return
		}
		flood(conn, start, text)
	}
}

// bomb is a megabyte of a text, compressed.
func bomb(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = io.WriteString(z, strings.Repeat(text, 1<<20/len(text)))
	_ = z.Close()
	return b.String()
}

// drip sends a comment again and again, so that the answer is never silent.
func drip(w http.ResponseWriter, _ int) {
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		if _, err := io.WriteString(w, ": a moment\n\n"); err != nil {
			return
		}
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// silent answers when the program has left.
func silent(w http.ResponseWriter, _ int) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = io.Copy(io.Discard, conn)
	_ = conn.Close() // the program has closed it
}

// serverAttack is an attack by the model's server.
type serverAttack struct {
	name   string
	answer answer
	// code is the exit code, and text a part of standard error.
	code int
	text string
	// ran is the number of calls of touch that run.
	ran int
}

// serverAttacks are the attacks. The program must not connect to elsewhere, an address, nor change
// outside, a file.
func serverAttacks(elsewhere, outside string) []serverAttack {
	const line, long = 64 << 10, 1 << 20
	xs := strings.Repeat("x", long)
	touch := []string{"command", "echo x >>ran"}
	var many strings.Builder
	for i := range 200_000 {
		many.WriteString(call(i, fmt.Sprint("c", i), "shell", touch...))
	}
	cut := call(0, "c", "shell", touch...)
	return []serverAttack{
		{"a redirect", page(307, "text/html", "", "Location", elsewhere), 5, "redirects to", 0},
		{"an endless text", endless("", event(`"content":"`+xs[:line]+`"`)), 5, "longer than 32 MiB", 0},
		{"an endless line", endless("data: ", xs[:line]), 5, "longer than 16 MiB", 0},
		{
			"a compressed bomb", endless("", bomb(": "+xs[:1000]+"\n\n"), "Content-Encoding", "gzip"), 5,
			"longer than 32 MiB", 0,
		},
		{"an endless header", raw("HTTP/1.1 200 OK\r\nX: ", xs[:line]), 5, "header", 0},
		{"endless headers", raw("HTTP/1.1 200 OK\r\n", "A: "+xs[:line]+"\r\n"), 5, "header", 0},
		{"endless early answers", raw("", "HTTP/1.1 103 Early Hints\r\nA: x\r\n\r\n"), 5, "", 0},
		{"another protocol", raw("SSH-2.0-"+escapes+"\r\n"+escapes, ""), 5, "malformed", 0},
		{"many calls", stream(many.String(), finish("tool_calls")), 5, "more than 256 tool calls", 0},
		{
			"endless arguments",
			endless(piece(0, "c", "shell", `{"command":"echo x >>ran;`), piece(0, "", "", xs)), 5,
			"longer than 4 MiB", 0,
		},
		{
			"deep arguments", stream(piece(0, "c", "shell", `{"command":"echo x >>ran","x":`+
				strings.Repeat("[", long)+strings.Repeat("]", long)+"}"), finish("tool_calls")), 0, "", 0,
		},
		{
			"a break in a call", raw("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"+
				"Content-Length: 99999\r\n\r\n"+cut, ""), 5, "", 0,
		},
		{"an end in a call", func(w http.ResponseWriter, _ int) { stream(cut)(w, 0) }, 5, "", 0},
		{"a call at the limit of length", stream(cut, finish("length")), 0, "", 0},
		{
			"escapes", stream(event(`"content":`+quoted("text"+escapes)),
				call(0, "c"+escapes, "shell"+escapes, "command", escapes),
				call(1, "d", "shell", "command", "printf '"+escapes+"'; echo x >>ran"),
				call(2, "e", "read_file", "file_path", escapes), finish("tool_calls")), 0, "", 1,
		},
		{
			"names outside", stream(
				call(0, "a", "write_file", "file_path", "../outside", "content", "x"),
				call(1, "b", "write_file", "file_path", "/../.."+outside, "content", "x"),
				call(2, "c", "write_file", "file_path", "link", "content", "x"),
				call(3, "d", "apply_patch", "patch",
					"*** Begin Patch\n*** Delete File: ../outside\n*** End Patch"),
				call(4, "e", "shell", "command", "echo x >link; echo x >"+outside+"; echo x >>ran"),
				finish("tool_calls")), 0, "", 1,
		},
		{
			"tools that do not exist", stream(call(0, "c", "../../shell", touch...),
				call(1, "d", "", touch...), call(2, "e", "shell\x00", touch...), finish("tool_calls")), 0,
			"", 0,
		},
		{
			"calls with one ID", stream(cut, call(1, "c", "shell", touch...), finish("tool_calls")), 0, "",
			1,
		},
		{
			"invalid UTF-8", stream(event(`"content":"a`+"\xff\xfe\xed\xa0\x80"+`"`),
				call(0, "c\xff", "shell\xfe", touch...), call(1, "d", "read_file", "file_path", "\xff"),
				finish("tool_calls")), 0, "", 0,
		},
		{"a reason that lies", stream(finish("tool_calls")), 0, "0 tool calls", 0},
		{
			"a large error", page(400, "application/json", `{"error":{"message":`+quoted("no"+escapes+
				secret+strings.Repeat(xs, 32))+`}}`), 5, "no", 0,
		},
		{
			"an endless error", endless(`{"error":{"message":"no`, xs, "Content-Type", "application/json"),
			5, "", 0,
		},
		{"a page", page(200, "text/html", "<html>"+escapes+secret+"</html>"), 5, "", 0},
		{"a wait of years", page(429, "application/json", "{}", "Retry-After", "100000000"), 5, "", 0},
		{"no answer", silent, 124, "", 0},
		{"a trickle", drip, 124, "", 0},
	}
}

// needSandbox ends a test where no sandbox works.
func needSandbox(t *testing.T) {
	t.Helper()
	got := program(t, t.TempDir(), nil, "exec", "--sandbox=require", "--", "true")
	if got.code == 125 {
		daemons.Missing(t, "sandbox", got.stderr)
	}
}

// TestHostileServer runs the program with servers that attack it. It ends by itself with the
// documented code, in a bounded memory, without an escape for a terminal, and sends the key to no
// other server; calls that are not complete do not run, and nothing outside changes.
func TestHostileServer(t *testing.T) {
	long(t)
	needSandbox(t)
	var stolen atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		stolen.Add(1)
	}))
	t.Cleanup(func() {
		other.Close()
		if n := stolen.Load(); n > 0 {
			t.Errorf("%d requests went to another server", n)
		}
	})
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range serverAttacks(other.URL, outside) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.try(t, outside)
			if text, err := os.ReadFile(outside); err != nil || string(text) != "mine" {
				t.Errorf("the file outside is %q, %v", text, err)
			}
		})
	}
}

// try runs the program with the server.
func (tt serverAttack) try(t *testing.T, outside string) {
	t.Helper()
	var requests atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || !json.Valid(body) || !utf8.Valid(body) {
			t.Errorf("the program sends %d bytes that are no text, %v", len(body), err)
		}
		tt.answer(w, int(requests.Add(1)-1))
	}))
	defer srv.Close()
	dir, err := os.MkdirTemp(filepath.Dir(outside), "work-") //nolint:usetesting // beside outside
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	timeout := "--timeout=2m"
	if tt.code == 124 {
		timeout = "--timeout=5s"
	}
	got, peak := measured(t, dir, "run", "--sandbox=require", "--model=openai-compatible/m", timeout,
		"--retry-for=1s",
		"--base-url="+srv.URL+"/v1", "--patch="+filepath.Join(t.TempDir(), "patch"), "a task")
	if got.code != tt.code || !strings.Contains(got.stderr, tt.text) {
		t.Errorf("want code %d and %q: %.2000s", tt.code, tt.text, got)
	}
	checkText(t, got)
	if peak > maxPeak {
		t.Errorf("the program used %d MiB", peak>>20)
	}
	t.Logf("%d MiB, %d requests, %.300s", peak>>20, requests.Load(), got)
	text, err := os.ReadFile(filepath.Join(dir, "ran"))
	if n := strings.Count(string(text), "x"); n != tt.ran {
		t.Errorf("%d calls ran, want %d: %v", n, tt.ran, err)
	}
}

// checkText checks that the output is short text without the key, which no terminal obeys.
func checkText(t *testing.T, got ran) {
	t.Helper()
	for _, bad := range []string{"\x1b", "\u009b", "\r", "\b", secret} {
		if got.contains(bad) {
			t.Errorf("%q is in the output: %.2000s", bad, got)
		}
	}
	if n := len(got.stdout) + len(got.stderr); n > 64<<10 || !utf8.ValidString(got.stdout+got.stderr) {
		t.Errorf("the output has %d bytes, or no text", n)
	}
}

// measured runs the program with the key in dir, and also returns its largest memory in bytes. It
// kills the program after five minutes.
func measured(t *testing.T, dir string, args ...string) (ran, int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, built(t, "cmd/sandboxagent", runtime.GOARCH), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SANDBOXAGENT_STATE_DIR="+t.TempDir(),
		"SANDBOXAGENT_API_KEY="+secret)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan int64)
	go func() {
		peak := int64(0)
		for ctx.Err() == nil {
			peak = max(peak, highWater(cmd.Process.Pid))
			select {
			case ended <- peak:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
		close(ended)
	}()
	_ = cmd.Wait() // the exit code tells
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}, <-ended
}

// highWater is the largest memory of a process so far, in bytes. The usage of an ended process
// does not tell: it includes the memory of the process that started it.
func highWater(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid)) // missing after the end
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	var kib int64
	_, _ = fmt.Sscan(rest, &kib) // a process that is ending has none
	return kib << 10
}

// TestCutCallOfEachProvider ends the answer of each provider before the event that completes it,
// after all arguments of a call. The call does not run.
func TestCutCallOfEachProvider(t *testing.T) {
	long(t)
	needSandbox(t)
	for model, root := range map[string]func(*llmtest.Server) string{
		"openai/gpt-5.2": (*llmtest.Server).URL, "openai-compatible/m": (*llmtest.Server).URL,
		"anthropic/claude-opus-5-5": (*llmtest.Server).Root,
		"gemini/gemini-3-pro":       (*llmtest.Server).Root,
	} {
		for _, point := range []llmtest.Fault{{Cut: llmtest.AtEnd}, {End: llmtest.AtEnd}} {
			t.Run(fmt.Sprintf("%s %s%s", model, point.Cut, point.End), func(t *testing.T) {
				t.Parallel()
				reply := llmtest.Use(llmtest.Call{
					ID: "c", Name: "shell", Arguments: `{"command":"echo x >>ran"}`,
				})
				reply.Fault = point
				srv := llmtest.NewServer(t, func(*llmtest.Request) llmtest.Reply { return reply })
				dir := t.TempDir()
				got := program(t, dir, []string{"SANDBOXAGENT_API_KEY=" + srv.Key()}, "run",
					"--sandbox=require", "--model="+model, "--base-url="+root(srv), "--retry-for=1s",
					"--timeout=2m", "a task")
				if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil || got.code != 5 {
					t.Errorf("the call ran (%v), or: %s", err, got)
				}
			})
		}
	}
}
