package main

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
)

// maxAgentFile bounds the description of a kind of sub-agent, in bytes.
const maxAgentFile = 1 << 20

// agentTools are the tools that start and control sub-agents.
var agentTools = [...]string{"spawn_agent", "send_input", "wait", "close_agent"}

func agentsFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "agents", Category: groupModel,
		DefaultText: "agents in your configuration directory, if it exists",
		Usage:       "read kinds of sub-agents from the Markdown files of `DIR`",
	}
}

// withKind returns the configuration of an agent of the kind that --agent names.
func withKind(c *cli.Context, cfg agent.Config) (agent.Config, error) {
	kind := cmp.Or(c.String("agent"), agent.KindBuild)
	if kind == agent.KindPlan && c.String("mode") == agent.KindBuild {
		return cfg, usagef("--agent=plan and --mode=build exclude each other")
	}
	of, err := cfg.WithKind(kind)
	if err != nil {
		prefix := "agent: " + agent.ErrConfig.Error() + ": "
		return cfg, usagef("--agent: %s", strings.TrimPrefix(err.Error(), prefix))
	}
	return of, nil
}

// agentKinds reads the kinds of sub-agents of the user.
func (p *program) agentKinds(c *cli.Context) ([]agent.Kind, error) {
	dir := c.String("agents")
	given := dir != ""
	if !given {
		if dir = configFile("agents"); dir == "" {
			return nil, nil
		}
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) && !given {
		return nil, nil
	}
	if err != nil {
		return nil, usagef("--agents: %s", err)
	}
	known, err := p.toolRegistry()
	if err != nil {
		return nil, err
	}
	var kinds []agent.Kind
	files := map[string]string{}
	for _, entry := range entries {
		file := filepath.Join(dir, entry.Name())
		if entry.IsDir() || filepath.Ext(file) != ".md" {
			continue
		}
		if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
			return nil, usagef("--agents: %s is not a regular file", file) // reading it may never end
		}
		data, err := readFile(file, maxAgentFile)
		if err != nil {
			return nil, usagef("--agents: %s", err)
		}
		kind, err := agent.ParseKind(data)
		if err != nil {
			return nil, usagef("--agents: %s: %s", file, strings.TrimPrefix(err.Error(), "agent kind: "))
		}
		if other := files[kind.Name]; other != "" {
			return nil, usagef("--agents: %s and %s describe the same kind, %s", other, file, kind.Name)
		}
		files[kind.Name] = file
		for _, name := range kind.Tools {
			if _, ok := known.Get(name); !ok && !isRunTool(name) {
				return nil, usagef("--agents: %s: unknown tool %q (known: %s)", file, name,
					strings.Join(known.Names(), ", "))
			}
		}
		if kind.Rules != nil {
			if err := p.checkPermissions(kind.Rules); err != nil {
				return nil, usagef("--agents: %s: %s", file, err)
			}
		}
		kinds = append(kinds, kind)
	}
	if given && len(kinds) == 0 {
		return nil, usagef("--agents: no Markdown file (*.md) in %s", dir)
	}
	return kinds, nil
}
