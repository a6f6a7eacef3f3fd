package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/local"
	"github.com/sandboxagent/sandboxagent/internal/bench"
	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/anthropic"
	"github.com/sandboxagent/sandboxagent/runtime/llm/gemini"
	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/llm/openai"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	journal "github.com/sandboxagent/sandboxagent/runtime/session"
)

// BenchmarkVersion is the start of the program, against the start of /bin/true.
func BenchmarkVersion(b *testing.B) {
	name := command(b)
	var ours, native bench.Samples
	for b.Loop() {
		native.Time(b, exec.Command("/bin/true").Run)
		ours.Time(b, exec.Command(name, "version").Run)
	}
	ours.Report(b, "version", time.Millisecond, "ms")
	b.ReportMetric(bench.Ratio(ours, native), "x-of-true")
}

// BenchmarkFirstRequest is the time from the start of sandboxagent run to the arrival of its first
// request, in an empty directory and in a git repository, with and without a sandbox, and the
// memory used until then.
func BenchmarkFirstRequest(b *testing.B) {
	repository := b.TempDir()
	for _, args := range [][]string{{"init", "-q"}, {
		"-c", "user.name=t", "-c", "user.email=t@e", "commit", "-q", "--allow-empty", "-m", "x",
	}} {
		if out, err := exec.Command("git", append([]string{"-C", repository},
			args...)...).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	for where, dir := range map[string]string{"empty": b.TempDir(), "git": repository} {
		b.Run(where, func(b *testing.B) {
			name := command(b)
			arrived := make(chan time.Time, 1)
			var program atomic.Pointer[os.Process]
			var rss atomic.Value // MiB, of the last run
			listener, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			srv := llmtest.Serve(&watchedListener{listener, func() {
				arrived <- time.Now()
				if p := program.Load(); p != nil {
					if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid)); err == nil {
						rss.Store(peakOf(b, string(status)))
					}
				}
			}}, func(*llmtest.Request) llmtest.Reply { return llmtest.Text("done") })
			defer srv.Close()
			var ours, bare bench.Samples
			for b.Loop() {
				for _, c := range []struct {
					sandbox string
					times   *bench.Samples
				}{{"auto", &ours}, {"off", &bare}} {
					cmd := exec.Command(name, "run", "--yes", "--sandbox="+c.sandbox, "--workdir", dir, "--model",
						"openai/gpt-5.2", "--base-url", srv.URL(), "say done")
					cmd.Env = append(os.Environ(), "OPENAI_API_KEY="+srv.Key(),
						"SANDBOXAGENT_STATE_DIR="+b.TempDir())
					var out bytes.Buffer
					cmd.Stdout, cmd.Stderr = &out, &out
					program.Store(nil)
					start := time.Now()
					if err := cmd.Start(); err != nil {
						b.Fatal(err)
					}
					program.Store(cmd.Process)
					if err := cmd.Wait(); err != nil {
						b.Fatalf("%v: %s", err, out.String())
					}
					*c.times = append(*c.times, (<-arrived).Sub(start))
				}
			}
			ours.Report(b, "first-request", time.Millisecond, "ms")
			bare.Report(b, "no-sandbox", time.Millisecond, "ms")
			b.ReportMetric(bench.Ratio(ours, bare), "x-of-no-sandbox")
			if mib, ok := rss.Load().(float64); ok {
				b.ReportMetric(mib, "MiB-RSS")
			}
		})
	}
}

// watchedListener calls arrived when the first bytes of a connection have arrived.
type watchedListener struct {
	net.Listener
	arrived func()
}

func (l *watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: c, arrived: l.arrived}, nil
}

type watchedConn struct {
	net.Conn
	once    sync.Once
	arrived func()
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.once.Do(c.arrived)
	}
	return n, err
}

// benchWires are the interfaces of providers, each with a whole answer that calls a tool.
var benchWires = []struct {
	name string
	// answer is sent as it is; its %[1]s is the arguments of the call.
	answer []string
	// raw is set where the arguments in the answer are JSON, not a string.
	raw     bool
	client  func(root string) (llm.Client, error)
	profile profile.Profile
}{
	{
		name: "responses", profile: profile.OpenAI("gpt-5.2"),
		answer: []string{
			`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call",` +
				`"id":"f","call_id":"c","name":"shell","arguments":%[1]s,"status":"completed"}}`,
			`{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","id":"f",` +
				`"call_id":"c","name":"shell","arguments":%[1]s,"status":"completed"}}`,
			`{"type":"response.completed","response":{"id":"r","object":"response","status":"completed",` +
				`"model":"m",` +
				`"output":[{"type":"function_call","id":"f","call_id":"c","name":"shell","arguments":%[1]s,` +
				`"status":"completed"}],` +
				`"usage":{"input_tokens":1,"output_tokens":1,"total_tokens":2}}}`,
		},
		client: func(root string) (llm.Client, error) {
			return openai.New(openai.Config{BaseURL: root + "/v1", APIKey: "k"})
		},
	},
	{
		name: "chat", profile: profile.OpenAI("gpt-5.2"),
		answer: []string{
			`{"id":"r","object":"chat.completion.chunk","model":"m","choices":[{"index":0,` +
				`"delta":{"role":"assistant","tool_calls":` +
				`[{"index":0,"id":"c","type":"function","function":{"name":"shell","arguments":%[1]s}}]}}]}`,
			`{"id":"r","object":"chat.completion.chunk","model":"m","choices":[{"index":0,"delta":{},` +
				`"finish_reason":"tool_calls"}],` +
				`"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`,
			`[DONE]`,
		},
		client: func(root string) (llm.Client, error) {
			return openai.New(openai.Config{BaseURL: root + "/v1", APIKey: "k", API: openai.Chat})
		},
	},
	{
		name: "messages", profile: profile.Anthropic("claude-sonnet-4-5"),
		answer: []string{
			`{"type":"message_start","message":{"id":"r","type":"message","role":"assistant","model":"m",` +
				`"content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"c",` +
				`"name":"shell","input":{}}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta",` +
				`"partial_json":%[1]s}}`,
			`{"type":"content_block_stop","index":0}`,
			`{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":1}}`,
			`{"type":"message_stop"}`,
		},
		client: func(root string) (llm.Client, error) {
			return anthropic.New(anthropic.Config{BaseURL: root, APIKey: "k"})
		},
	},
	{
		name: "generate", profile: profile.Gemini("gemini-2.5-pro"), raw: true,
		answer: []string{
			`{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"shell",` +
				`"args":%[1]s}}]},"finishReason":"STOP","index":0}],` +
				`"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1,"totalTokenCount":2},` +
				`"modelVersion":"m"}`,
		},
		client: func(root string) (llm.Client, error) {
			return gemini.New(gemini.Config{BaseURL: root, APIKey: "k"})
		},
	},
}

// instantServer answers every request at once with the same events, without any check, so that it
// costs little.
func instantServer(b *testing.B, events []string, arguments string) (root string) {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	var body bytes.Buffer
	for _, e := range events {
		if strings.Contains(e, "%[1]s") {
			e = fmt.Sprintf(e, arguments)
		}
		var typed struct{ Type string }
		if json.Unmarshal([]byte(e), &typed) == nil && typed.Type != "" {
			fmt.Fprintf(&body, "event: %s\n", typed.Type)
		}
		fmt.Fprintf(&body, "data: %s\n\n", e)
	}
	srv := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write(body.Bytes())
		}),
	}
	go srv.Serve(l) //nolint:errcheck // it ends with Close
	b.Cleanup(func() { _ = srv.Close() })
	return "http://" + l.Addr().String()
}

// BenchmarkTurn measures the cost of a turn above its command: the whole of request, answer, tool
// call, journal and events, with a model that answers at once, less bash -c true run by os/exec in
// the same run.
func BenchmarkTurn(b *testing.B) {
	for i, wire := range benchWires {
		b.Run(wire.name, func(b *testing.B) {
			environments(b, func(b *testing.B,
				e env.Environment,
			) {
				benchTurn(b, e, i)
			})
		})
	}
}

func benchTurn(b *testing.B, e env.Environment, wire int) {
	const rounds = 50
	w := benchWires[wire]
	arguments := `{"command":"true"}`
	if !w.raw {
		arguments = strconv.Quote(arguments)
	}
	client, err := w.client(instantServer(b, w.answer, arguments))
	if err != nil {
		b.Fatal(err)
	}
	a, err := agent.New(agent.Config{
		Client: client, Profile: w.profile, Env: e, Store: journal.OnDisk(b.TempDir()),
		Limits: agent.Limits{
			MaxToolRounds: rounds, NoLoopDetection: true,
		}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.Fatal(err)
	}
	shell := e.Info().Shell
	var turns, commands bench.Samples
	for b.Loop() {
		for range rounds {
			commands.Time(b, exec.Command(shell[0], append(slices.Clone(shell[1:]), "true")...).Run)
		}
		start := time.Now()
		res, err := a.Run(b.Context(), agent.Input{Text: "go on"})
		if err != nil || len(res.ToolCalls) != rounds || len(res.Failures) > 0 {
			b.Fatalf("%d calls, %v, %v", len(res.ToolCalls), res.Failures, err)
		}
		turns = append(turns, time.Since(start)/rounds)
	}
	turns.Report(b, "turn", time.Microsecond, "us")
	commands.Report(b, "command", time.Microsecond, "us")
	b.ReportMetric(bench.Milliseconds(turns.Percentile(50)-commands.Percentile(50)), "gap-ms")
}

// BenchmarkPrompt counts the tokens that every request has before the conversation, in an
// empty directory: the system prompt, and the names, descriptions and schemas of the tools as JSON,
// without a planner and with one.
// Tokens are those of OpenAI's encoding o200k_base for all, for the other providers publish no
// encoding.
func BenchmarkPrompt(b *testing.B) {
	tiktoken.SetBpeLoader(loader.NewOfflineLoader())
	encoding, err := tiktoken.GetEncoding(tiktoken.MODEL_O200K_BASE)
	if err != nil {
		b.Fatal(err)
	}
	tokens := func(text string) float64 { return float64(len(encoding.Encode(text, nil, nil))) }
	for _, p := range []profile.Profile{
		profile.OpenAI("gpt-5.2"),
		profile.Anthropic("claude-sonnet-4-5"), profile.Gemini("gemini-2.5-pro"),
	} {
		b.Run(p.ID, func(b *testing.B) { benchPrompt(b, p, false, tokens) })
		b.Run(p.ID+"-planner", func(b *testing.B) { benchPrompt(b, p, true, tokens) })
	}
}

func benchPrompt(b *testing.B, p profile.Profile, planner bool, tokens func(string) float64) {
	e, err := local.New(local.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	closeAfter(b, e)
	var sent llm.Request
	a, err := agent.New(agent.Config{
		Client:  clientFunc(func(req llm.Request) { sent = req }),
		Profile: p, Env: e, Store: journal.InMemory(), Planner: planner,
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := a.Run(b.Context(), agent.Input{Text: "hello"}); err != nil {
			b.Fatal(err)
		}
	}
	tools, err := json.Marshal(sent.Tools)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(tokens(p.Instructions), "instructions-tokens")
	b.ReportMetric(tokens(sent.System), "system-tokens")
	b.ReportMetric(tokens(string(tools)), "tools-tokens")
	b.ReportMetric(float64(len(sent.Tools)), "tools")
}

// clientFunc is a model that passes its request to a function and answers "done".
type clientFunc func(llm.Request)

func (f clientFunc) Stream(_ context.Context, req llm.Request) iter.Seq2[llm.Delta, error] {
	return func(yield func(llm.Delta, error) bool) {
		f(req)
		_ = yield(llm.Delta{Kind: llm.DeltaText, Text: "done"}, nil) &&
			yield(llm.Delta{Kind: llm.DeltaDone, Done: &llm.Done{Finish: llm.FinishStop}}, nil)
	}
}

// BenchmarkExec is a command in the local environment against the same by os/exec.
func BenchmarkExec(b *testing.B) { environments(b, benchExec) }

func benchExec(b *testing.B, e env.Environment) {
	var ours, native bench.Samples
	for b.Loop() {
		native.Time(b, func() error {
			cmd := exec.Command("/bin/true")
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			return cmd.Run()
		})
		ours.Time(b, func() error {
			_, _, err := env.Output(b.Context(), e, env.Command{Argv: []string{"/bin/true"}},
				env.OutputOptions{})
			return err
		})
	}
	native.Report(b, "osexec", time.Microsecond, "us")
	ours.Report(b, "exec", time.Microsecond, "us")
	b.ReportMetric(bench.Ratio(ours, native), "x-of-osexec")
	b.ReportMetric(bench.Milliseconds(ours.Percentile(50)-native.Percentile(50)), "above-ms")
}

// BenchmarkSupervision measures the cost of a helper at the start and the end of an environment,
// against the start of /bin/true.
func BenchmarkSupervision(b *testing.B) {
	command(b)
	var native, open, closed bench.Samples
	for b.Loop() {
		native.Time(b, exec.Command("/bin/true").Run)
		var e env.Environment
		open.Time(b, func() (err error) {
			e, err = supervised(b.Context(), b, b.TempDir())
			return err
		})
		closed.Time(b, func() error { return e.Close() })
	}
	native.Report(b, "true", time.Microsecond, "us")
	open.Report(b, "open", time.Microsecond, "us")
	closed.Report(b, "close", time.Microsecond, "us")
}

// BenchmarkGiB is a command that prints 1 GiB, of which both ends are kept, against os/exec that
// throws it away.
func BenchmarkGiB(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("reads the memory in use from /proc")
	}
	environments(b, benchGiB)
}

func benchGiB(b *testing.B, e env.Environment) {
	argv := []string{"head", "-c", strconv.Itoa(1 << 30), "/dev/zero"}
	var ours, native bench.Samples
	growth := 0.0
	for b.Loop() {
		native.Time(b, func() error {
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Stdout = struct{ io.Writer }{io.Discard}
			return cmd.Run()
		})
		before := peakRSS(b, true)
		ours.Time(b, func() error {
			out, _, err := env.Output(b.Context(), e, env.Command{Argv: argv}, env.OutputOptions{})
			if err == nil && out.Stdout.Size() != 1<<30 {
				err = fmt.Errorf("%d bytes came", out.Stdout.Size())
			}
			return err
		})
		growth = max(growth, peakRSS(b, false)-before)
	}
	b.ReportMetric(ours.Percentile(50).Seconds(), "s")
	b.ReportMetric(bench.Ratio(ours, native), "x-of-osexec")
	b.ReportMetric(growth, "MiB-growth")
}

// BenchmarkIdleSessions is the memory of 1,000 sessions that wait for input.
func BenchmarkIdleSessions(b *testing.B) {
	const n = 1000
	e, err := local.New(local.Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close() //nolint:errcheck // nothing runs in it
	client, err := openai.New(openai.Config{BaseURL: "http://127.0.0.1:1/v1", APIKey: "k"})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		a, err := agent.New(agent.Config{
			Client: client, Profile: profile.OpenAI("m"), Env: e,
			Store: journal.OnDisk(filepath.Join(b.TempDir(), "s")), Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			b.Fatal(err)
		}
		before := heap()
		for range n {
			if _, err := a.NewSession(b.Context(), agent.SessionOptions{}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(heap()-before)/n/1024, "KiB/session")
		b.ReportMetric(float64(runtime.NumGoroutine())/n, "goroutines/session")
		if err := a.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse) //nolint:gosec // it fits
}

// environments are this machine in both ways, by name: in this process, and through a helper.
func environments(b *testing.B, bench func(b *testing.B, e env.Environment)) {
	b.Helper()
	b.Run("direct", func(b *testing.B) {
		e, err := local.New(local.Config{Dir: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		defer e.Close() //nolint:errcheck // nothing runs in it
		bench(b, e)
	})
	b.Run("supervised", func(b *testing.B) {
		e, err := supervised(b.Context(), b, b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		defer e.Close() //nolint:errcheck // nothing runs in it
		bench(b, e)
	})
}

// peakRSS returns the most memory that this process has used since it was last reset, in MiB, and
// resets it if reset.
func peakRSS(b *testing.B, reset bool) float64 {
	b.Helper()
	if reset {
		if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
			b.Fatal(err)
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	return peakOf(b, string(status))
}

// peakOf reads the most memory that a process has used, in MiB, from its /proc/PID/status.
func peakOf(t testing.TB, status string) float64 {
	t.Helper()
	for line := range strings.Lines(status) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			if err != nil {
				t.Fatal(err)
			}
			return float64(kib) / 1024
		}
	}
	t.Fatalf("no VmHWM in\n%s", status)
	return 0
}
