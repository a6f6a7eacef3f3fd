package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

func (p *program) toolCommand() *cli.Command {
	return &cli.Command{
		Usage:     "make one tool call; without a name, list the tools",
		ArgsUsage: "[flags] [NAME]",
		UsageText: `
sandboxagent tool glob --args '{"pattern": "**/*.go"}'
sandboxagent tool shell --help`,
		Description: `
Writes to standard output the text that a model would get. "tool NAME --help" describes a tool.
Exit codes: 0 ok, 1 an error result, 2 an unknown tool, bad arguments or flags, 6 environment
error, 130 interrupted, 143 terminated.`,
		Flags: append([]cli.Flag{
			&cli.StringFlag{
				Name: "args", Category: groupCommand, Value: "{}",
				Usage: "pass the arguments `JSON`; @FILE reads them from a file, - from standard input",
			},
		}, environmentFlags(groupCommand, "stop the call after this `DURATION`")...),
		Action: p.action(p.tool),
	}
}

// toolRegistry returns the tools that work without a run: those of all profiles. The first tool of
// a name counts.
func (p *program) toolRegistry() (*tool.Registry, error) {
	var all []tool.Tool
	for _, t := range slices.Concat(p.tools, profile.Anthropic("").Tools, profile.OpenAI("").Tools,
		profile.Gemini("").Tools) {
		if !slices.ContainsFunc(all, func(have tool.Tool) bool { return have.Name == t.Name }) {
			all = append(all, t)
		}
	}
	return tool.NewRegistry(slices.DeleteFunc(all,
		func(t tool.Tool) bool { return isRunTool(t.Name) })...)
}

// isRunTool reports whether the tool name acts only on the run of its caller.
func isRunTool(name string) bool {
	return slices.Contains(runTools[:], name) || slices.Contains(agentTools[:], name)
}

var (
	runTools = [...]string{"ask_user", "exit", "plan_write", "plan_update", "plan_read"}
	// plannerTools are those of --planner.
	plannerTools = runTools[2:]
)

// findTool returns the tool name, or a usageError with the known names.
func findTool(r *tool.Registry, name string) (tool.Tool, error) {
	t, known := r.Get(name)
	switch {
	case known:
		return t, nil
	case isRunTool(name):
		return t, usagef("the tool %s works only in a run of a model", name)
	}
	return t, usagef("unknown tool %q (known: %s)", name, strings.Join(r.Names(), ", "))
}

// toolHelp prints the tools of these names as a model gets them.
func (p *program) toolHelp(names []string) error {
	registry, err := p.toolRegistry()
	if err != nil {
		return err
	}
	for _, name := range names {
		t, err := findTool(registry, name)
		if err != nil {
			return err
		}
		var schema bytes.Buffer
		if err := json.Indent(&schema, t.Schema, "", "  "); err != nil {
			return fmt.Errorf("the schema of the tool %s: %w", name, err)
		}
		_, err = fmt.Fprintf(p.std.out, "sandboxagent tool %s --args JSON\n\n%s\n\narguments, as a "+
			"JSON schema:\n%s\n",
			name, strings.TrimSpace(t.Description), strings.TrimSpace(schema.String()))
		if err != nil {
			return err
		}
	}
	return nil
}

// tool is the command tool.
func (p *program) tool(ctx context.Context, c *cli.Context) (int, error) {
	registry, err := p.toolRegistry()
	if err != nil {
		return 0, err
	}
	if c.NArg() == 0 {
		return codeDone, p.listTools(registry)
	}
	if c.NArg() > 1 {
		return 0, usagef("only one tool per call; --args has its arguments")
	}
	name := c.Args().First()
	if _, err := findTool(registry, name); err != nil {
		return 0, err
	}
	s, err := p.parseEnvironmentFlags(c)
	if err != nil {
		return 0, err
	}
	args, err := p.readArgs(ctx, c.String("args"))
	if err != nil {
		return 0, err
	}
	e, err := p.open(ctx, s)
	if err != nil {
		return 0, err
	}
	g := newTreeGuard(ctx, e, true)
	g.start()
	g.wait()
	code, err := p.call(ctx, registry, e, llm.ToolCall{ID: "call_1", Name: name, Arguments: args}, s)
	_, gerr := g.finish(ctx)
	if err = cmp.Or(err, gerr); gerr != nil {
		code = codeEnvironment
	}
	cerr := e.close()
	if err == nil {
		err = cerr
	}
	if lerr := e.logError(); err == nil && lerr != nil {
		p.fail(lerr)
		if code == codeDone {
			code = codeEnvironment
		}
	}
	return code, err
}

func (p *program) call(
	ctx context.Context, r *tool.Registry, e *environment, c llm.ToolCall, s environmentSettings,
) (int, error) {
	callCtx := ctx
	if s.timeout > 0 {
		var cancel context.CancelFunc
		callCtx, cancel = context.WithTimeoutCause(ctx, s.timeout,
			fmt.Errorf("the call timed out (--timeout %s)", s.timeout))
		defer cancel()
	}
	o := r.Run(callCtx, tool.Scope{Env: e.wrapped, Logger: e.log}, c)
	if err := p.show(o.Result); err != nil {
		return 0, fmt.Errorf("write the result: %w", err)
	}
	code := toolCode(ctx, o)
	if code == codeUsage {
		p.printLine(fmt.Sprintf("invalid arguments for %s, see standard output", c.Name))
	}
	return code, nil
}

// show writes the parts of a result, and a line for each image.
func (p *program) show(r llm.ToolResult) error {
	ended := true
	for _, part := range r.Parts {
		text := part.Text
		if part.Kind == llm.PartImage && part.Image != nil {
			text = fmt.Sprintf("[image: %s, %d bytes]\n", part.Image.MIME, len(part.Image.Data))
		}
		if text == "" {
			continue
		}
		if _, err := io.WriteString(p.std.out, text); err != nil {
			return err
		}
		ended = strings.HasSuffix(text, "\n")
	}
	if !ended {
		if _, err := io.WriteString(p.std.out, "\n"); err != nil {
			return err
		}
	}
	return nil
}

// maxArgs bounds the arguments of a call.
const maxArgs = 64 << 20

// readArgs returns the text of --args.
func (p *program) readArgs(ctx context.Context, value string) (string, error) {
	in := p.std.in
	switch {
	case strings.HasPrefix(value, "@"):
		f, err := os.Open(value[1:])
		if err != nil {
			return "", usagef("--args: %s", err)
		}
		defer f.Close() //nolint:errcheck // it was only read
		in = f
	case value != "-":
		return value, nil
	}
	data, err := readAll(ctx, in, maxArgs)
	if err != nil {
		return "", usagef("--args: %s", err)
	}
	return string(data), nil
}

func (p *program) listTools(r *tool.Registry) error {
	specs := r.Definitions()
	for _, spec := range specs {
		first, _, _ := strings.Cut(strings.TrimSpace(spec.Description), "\n")
		if i := strings.Index(first, ". "); i >= 0 {
			first = first[:i+1]
		}
		if _, err := fmt.Fprintf(p.std.out, "%-15s %s\n", spec.Name, first); err != nil {
			return err
		}
	}
	return nil
}
