package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/env/vars"
	"github.com/sandboxagent/sandboxagent/policy/redact"
)

// originName is the flag of config show that shows sources.
const originName = "origin"

const configShowName = "config show"

func (p *program) configShowCommand() *cli.Command {
	return &cli.Command{
		Usage:     "print the flags that variables and files set",
		ArgsUsage: "[flags]",
		UsageText: `
sandboxagent config show --origin
sandboxagent config show --profile-name ci --json`,
		Description: `
Arguments go before variables, these before ` + configName + ` of the project, that before the
profile, and that before ` + configName + ` in your configuration directory. Rules of the project
(deny, ask) add to all others. Secrets are redacted.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{
				Name: originName, Category: groupOutput,
				Usage: "print also the variable, or the file and the line",
			},
			jsonFlag("one JSON object a line"),
			profileNameFlag(),
		},
		Action: p.action(p.showConfig),
	}
}

// shownSetting is a line of config show --json.
type shownSetting struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin string `json:"origin"`
}

// showConfig is the command config show.
func (p *program) showConfig(_ context.Context, c *cli.Context) (int, error) {
	if err := noArguments(c); err != nil {
		return 0, err
	}
	app := p.app()
	r := settingsReader{line: &p.line}
	err := r.read(uniqueFlags(allFlags(app)))
	if err == nil {
		_, err = parseRules(r.rules)
	}
	if err != nil {
		return 0, err
	}
	var shown []setting
	for _, list := range r.bySource() {
		for _, s := range list {
			if findSetting(shown, s.name) == nil {
				shown = append(shown, s)
			}
		}
	}
	shown = append(shown, r.rules...)
	slices.SortStableFunc(shown, func(a, b setting) int { return strings.Compare(a.name, b.name) })
	redactSettings(shown)
	if c.Bool("json") {
		enc := json.NewEncoder(p.std.out)
		enc.SetEscapeHTML(false)
		for _, s := range shown {
			line := shownSetting{s.name, s.values, s.String()}
			if !isList(findFlag(allFlags(app), s.name)) {
				line.Value = s.values[0]
			}
			if err := enc.Encode(line); err != nil {
				return 0, err
			}
		}
		return codeDone, nil
	}
	table := tabwriter.NewWriter(p.std.out, 0, 8, 2, ' ', 0)
	for _, s := range shown { // Flush reports the errors of all writes
		line := s.name + "\t" + oneLine(strings.Join(s.values, ", "))
		if c.Bool(originName) {
			line += "\t" + oneLine(s.String())
		}
		_, _ = fmt.Fprintln(table, line)
	}
	return codeDone, table.Flush()
}

// redactSettings replaces secrets in values, by their form, and by the name in --var.
func redactSettings(list []setting) {
	secrets := redact.New(redact.Patterns, secretValues(os.Environ()))
	for i := range list {
		values := slices.Clone(list[i].values)
		for k, value := range values {
			name, _, _ := strings.Cut(value, "=")
			if list[i].name == "var" && vars.IsSecretName(name) {
				values[k] = name + "=[redacted]"
			} else {
				values[k] = secrets.Text(value)
			}
		}
		list[i].values = values
	}
}

func (p *program) configPathCommand() *cli.Command {
	return &cli.Command{
		Usage: "print the names of the configuration files",
		UsageText: `
sandboxagent config path
sandboxagent config path | grep user`,
		Description: `
Prints "project" and "user", the name of each file, and exists or missing. That of the project is in
the nearest directory upwards that has a .git, else in the current one.`,
		Action: p.action(p.configPath),
	}
}

// configPath is the command config path.
func (p *program) configPath(_ context.Context, c *cli.Context) (int, error) {
	if err := noArguments(c); err != nil {
		return 0, err
	}
	root, _, err := projectRoot(".")
	if err != nil {
		return 0, usagef("the current directory is unknown: %s", err)
	}
	table := tabwriter.NewWriter(p.std.out, 0, 8, 2, ' ', 0)
	for _, f := range [][2]string{
		{"project", filepath.Join(root, configName)}, {"user", configFile(configName)},
	} {
		state := "exists"
		if checkExists(f[1]) != nil {
			state = "missing"
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", f[0], f[1], state) // Flush reports the error
	}
	return codeDone, table.Flush()
}

func (p *program) configSchemaCommand() *cli.Command {
	return &cli.Command{
		Usage: "print the JSON Schema of " + configName,
		UsageText: `
sandboxagent config schema
sandboxagent config schema > sandboxagent.schema.json`,
		Action: p.action(func(_ context.Context, c *cli.Context) (int, error) {
			if err := noArguments(c); err != nil {
				return 0, err
			}
			enc := json.NewEncoder(p.std.out)
			enc.SetEscapeHTML(false)
			enc.SetIndent("", "  ")
			return codeDone, enc.Encode(configSchema(fileFlags()))
		}),
	}
}

// configSchema returns the JSON Schema of a file with keys for flags.
func configSchema(flags []cli.Flag) map[string]any {
	keys := make(map[string]any)
	for _, f := range flags {
		keys[f.Names()[0]] = keySchema(f.(documentedFlag))
	}
	all := map[string]any{
		profilesKey: map[string]any{
			"description":          "Named sets of keys, in the user's file: --profile-name selects one.",
			"type":                 "object",
			"additionalProperties": map[string]any{"$ref": "#/$defs/keys"},
		},
		trustedKey: map[string]any{
			"description": "Directories of projects that may set every key, in the user's file.",
			"type":        "array", "items": map[string]any{"type": "string"},
		},
	}
	for name, schema := range keys {
		all[name] = schema
	}
	return map[string]any{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"title":                "Configuration of sandboxagent",
		"description":          "Each key is a flag without its dashes. A project may set only some.",
		"type":                 "object",
		"additionalProperties": false,
		"properties":           all,
		"$defs": map[string]any{"keys": map[string]any{
			"type": "object", "additionalProperties": false, "properties": keys,
		}},
	}
}

// keySchema returns the JSON Schema of the values of a flag.
func keySchema(f documentedFlag) map[string]any {
	schema := map[string]any{"description": strings.ReplaceAll(f.GetUsage(), "`", "")}
	switch f.(type) {
	case *cli.BoolFlag:
		schema["type"] = "boolean"
	case *cli.IntFlag, *cli.Int64Flag:
		schema["type"] = "integer"
	case *cli.Float64Flag:
		schema["type"] = "number"
	case *cli.StringSliceFlag:
		schema["type"], schema["items"] = "array", map[string]any{"type": []string{"string", "number"}}
	default:
		schema["type"] = []string{"string", "number"}
	}
	if values := flagValues(f); len(values) > 0 && schema["type"] != "array" {
		schema["enum"] = values
	}
	return schema
}
