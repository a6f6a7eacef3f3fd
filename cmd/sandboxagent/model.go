package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/anthropic"
	"github.com/sandboxagent/sandboxagent/runtime/llm/gemini"
	"github.com/sandboxagent/sandboxagent/runtime/llm/openai"
	"github.com/sandboxagent/sandboxagent/runtime/llm/replay"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

// anyKey is the variable for the key of any provider. It precedes the variables of the provider.
const anyKey = "SANDBOXAGENT_API_KEY"

// scriptPrefix is the start of the name of a model that is a script.
const scriptPrefix = "script:"

const modelForms = "openai/MODEL, anthropic/MODEL, gemini/MODEL, openai-compatible/MODEL with " +
	"--base-url, script:FILE or replay:SESSION"

// provider is a service of models.
type provider struct {
	name string
	// profile is the ID of the profile of its models.
	profile string
	// keys are the variables for a key, after anyKey; the first set one counts.
	keys []string
	// open makes a client. It sends nothing.
	open func(key, baseURL string) (llm.Client, error)
}

var providers = [...]provider{
	{"openai", "openai", []string{"OPENAI_API_KEY"}, func(key, baseURL string) (llm.Client, error) {
		return openai.New(openai.Config{APIKey: key, BaseURL: baseURL})
	}},
	{"anthropic", "anthropic", []string{"ANTHROPIC_API_KEY"}, func(key, baseURL string) (llm.Client,
		error,
	) {
		return anthropic.New(anthropic.Config{APIKey: key, BaseURL: baseURL})
	}},
	{
		"gemini", "gemini",
		[]string{"GEMINI_API_KEY", "GOOGLE_API_KEY"},
		func(key, baseURL string) (llm.Client, error) {
			return gemini.New(gemini.Config{APIKey: key, BaseURL: baseURL})
		},
	},
	{compatible, "openai", []string{"OPENAI_API_KEY"}, func(key, baseURL string) (llm.Client, error) {
		return openai.New(openai.Config{
			APIKey: key, BaseURL: baseURL, API: openai.Chat,
			Provider: compatible,
		})
	}},
}

// compatible is the provider whose server the user names. Its key is optional.
const compatible = "openai-compatible"

func findProvider(name string) *provider {
	for i := range providers {
		if providers[i].name == name {
			return &providers[i]
		}
	}
	return nil
}

// keyVariables are all variables for API keys of models.
func keyVariables() []string {
	names := []string{anyKey}
	for _, p := range providers {
		names = append(names, p.keys...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// key returns the key of the provider; empty if no variable has one.
func (p *provider) key() string {
	for _, name := range append([]string{anyKey}, p.keys...) {
		if key := strings.TrimSpace(os.Getenv(name)); key != "" {
			return key
		}
	}
	return ""
}

// keyNames lists the variables for the key.
func (p *provider) keyNames() string {
	return strings.Join(slices.Concat(p.keys, []string{anyKey}), " or ")
}

// model is a model with its client.
type model struct {
	client  llm.Client
	profile profile.Profile
}

// openModel returns the model and the client that the flags select. It sends nothing.
func openModel(c *cli.Context) (model, error) {
	return openModelNamed(c, c.String("model"), c.String("base-url"), false)
}

// openModelNamed is openModel for a model of that name, with other flags than --model and
// --base-url. With keyElsewhere another program has the key and sends the requests.
func openModelNamed(c *cli.Context, spec, baseURL string, keyElsewhere bool) (model, error) {
	if spec == "" {
		return model{}, usagef("the model is missing; set --model or SANDBOXAGENT_MODEL (known: "+
			"%s)", modelForms)
	}
	table, _, err := modelTable(c.String("models"))
	if err != nil {
		return model{}, err
	}
	options, err := providerOptions(c)
	if err != nil {
		return model{}, err
	}
	if file, ok := strings.CutPrefix(spec, scriptPrefix); ok {
		if len(options) > 0 {
			return model{}, usagef("--%s has no effect on a script", providerOptionName)
		}
		return openScript(file, table)
	}
	name, modelName, _ := strings.Cut(spec, "/")
	p := findProvider(name)
	if p == nil || modelName == "" {
		return model{}, usagef("--model: %q has an unknown form (known: %s)", spec, modelForms)
	}
	key := p.key()
	switch {
	case name == compatible && baseURL == "":
		return model{}, usagef("--model %s needs --base-url, the server's address up to and without "+
			"/chat/completions", spec)
	case name != compatible && key == "" && keyElsewhere:
		key = "elsewhere" // the client sends nothing
	case name != compatible && key == "":
		return model{}, usagef("--model %s needs a key; set the variable %s", spec, p.keyNames())
	}
	client, err := p.open(key, baseURL)
	if err != nil {
		return model{}, usagef("--model %s: %s", spec, strings.TrimPrefix(err.Error(), p.profile+": "))
	}
	described, err := profile.New(p.profile, modelName, table)
	if len(options) > 0 {
		described.Options = maps.Clone(described.Options)
		if described.Options == nil {
			described.Options = options
		}
		maps.Copy(described.Options, options)
	}
	return model{client, described}, err
}

const providerOptionName = "provider-option"

func providerOptionFlag() cli.Flag {
	return &cli.StringSliceFlag{
		Name: providerOptionName, Category: groupModel,
		Usage: "add the field `NAME=VALUE` to requests, with a value in JSON or a text; may be repeated",
	}
}

// providerOptions returns the fields that --provider-option adds to requests.
func providerOptions(c *cli.Context) (map[string]any, error) {
	options := make(map[string]any)
	for _, text := range c.StringSlice(providerOptionName) {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, usagef("--%s: %q has no form NAME=VALUE", providerOptionName, text)
		}
		if _, twice := options[name]; twice {
			return nil, usagef("--%s: %s is given twice", providerOptionName, name)
		}
		var v any
		if json.Unmarshal([]byte(value), &v) != nil {
			v = value
		}
		options[name] = v
	}
	return options, nil
}

// openModels is openModel, and returns the kinds of sub-agents too. With a limit of money the
// prices of all their models must be known.
func (p *program) openModels(c *cli.Context, limits agent.Limits) (model, []agent.Kind, error) {
	var m model
	var err error
	switch {
	case p.replay != nil:
		m, err = p.replay.openModel(c)
	case p.part != nil && p.part.runner.models[c.String("model")].client != nil:
		m = p.part.runner.models[c.String("model")]
	default:
		m, err = openModel(c)
	}
	if err != nil {
		return m, nil, err
	}
	kinds, err := p.agentKinds(c)
	if err != nil || limits.MaxCost == 0 {
		return m, kinds, err
	}
	if err := checkPrices(m.profile, kinds, "--max-cost"); err != nil {
		return m, nil, err
	}
	return m, kinds, nil
}

// checkPrices reports the first model, of an agent and its sub-agents, without the price that a
// limit needs.
func checkPrices(p profile.Profile, kinds []agent.Kind, limit string) error {
	names := []string{p.Model}
	for _, k := range kinds {
		names = append(names, cmp.Or(k.Model, p.Model))
	}
	for _, name := range names {
		if p.WithModel(name).Price == nil {
			return usagef("%s: the price of the model %s is not known; give it in a table for --models",
				limit, name)
		}
	}
	return nil
}

func openScript(file string, table profile.Models) (model, error) {
	data, err := readScript(file)
	if err != nil {
		return model{}, usagef("--model script: %s", err)
	}
	script, err := replay.ParseScript(data, file)
	if err != nil {
		return model{}, usagef("--model script: %s", err)
	}
	described, err := profile.New("openai", cmp.Or(script.Model, "script"), table)
	return model{replay.NewScript(script), described}, err
}

// maxScript bounds a script, in bytes.
const maxScript = 64 << 20

func readScript(file string) ([]byte, error) { return readFile(file, maxScript) }

// readFile reads a file of at most limit bytes.
func readFile(file string, limit int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	return readOpen(f, limit)
}

// readOpen reads f, which has at most limit bytes, and closes it.
func readOpen(f *os.File, limit int64) ([]byte, error) {
	defer f.Close() //nolint:errcheck // it was only read
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", f.Name(), limit)
	}
	return data, err
}

// maxTable bounds a table of models, in bytes.
const maxTable = 1 << 20

func modelsFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "models", Category: groupModel,
		DefaultText: "models.json in your configuration directory, if it exists",
		Usage:       "extend the built-in table of models by `FILE`",
	}
}

// modelTable returns the table of models, and the name of the file that extends the built-in one:
// that of --models, else that of the user; may be empty.
func modelTable(file string) (profile.Models, string, error) {
	given := file != ""
	if !given {
		file = configFile("models.json")
	}
	if file == "" {
		return profile.DefaultModels(), "", nil
	}
	data, err := readFile(file, maxTable)
	if errors.Is(err, fs.ErrNotExist) && !given {
		return profile.DefaultModels(), "", nil
	}
	if err != nil {
		return profile.Models{}, "", usagef("--models: %s", err)
	}
	table, err := profile.ParseModels(data)
	if err != nil {
		return profile.Models{}, "", usagef("--models: %s: %s", file, strings.TrimPrefix(err.Error(),
			"models: "))
	}
	return table, file, nil
}

// configFile returns a file in the configuration directory of the user; empty if the system has
// none.
func configFile(name string) string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "sandboxagent", name)
}

func (p *program) modelsCommand() *cli.Command {
	return &cli.Command{
		Usage:     "list models with their context, output, knowledge, inputs and prices",
		ArgsUsage: "[flags]",
		UsageText: `
sandboxagent model list
sandboxagent model list --models models.json`,
		Description: `
A line is for the model of that name, and for those whose names continue it after a dash or the
like. Models that are not listed work, too, with a context of ` +
			fmt.Sprint(profile.UnknownContextWindow) + ` tokens. PRICE is
that of a million tokens of input and of output, for the model of that name and dated versions
of it.`,
		Flags:  []cli.Flag{modelsFlag()},
		Action: p.action(p.listModels),
	}
}

// listModels is the command model list.
func (p *program) listModels(_ context.Context, c *cli.Context) (int, error) {
	if err := noArguments(c); err != nil {
		return 0, err
	}
	models, file, err := modelTable(c.String("models"))
	if err != nil {
		return 0, err
	}
	table := tabwriter.NewWriter(p.std.out, 0, 8, 2, ' ', 0)
	// Flush reports the errors of all writes.
	_, _ = fmt.Fprintln(table, "MODEL\tCONTEXT\tOUTPUT\tKNOWLEDGE\tREASONING\tIMAGES\tPRICE")
	for _, m := range models.List() {
		output := "-"
		if m.MaxOutput > 0 {
			output = fmt.Sprint(m.MaxOutput)
		}
		price := "-"
		if m.Price != nil {
			price = fmt.Sprintf("$%g/$%g", m.Price.Input, m.Price.Output)
		}
		_, _ = fmt.Fprintf(table, "%s/%s\t%d\t%s\t%s\t%s\t%s\t%s\n", m.Provider, m.Prefix,
			m.ContextWindow, output, cmp.Or(m.KnowledgeCutoff, "-"), yesNo(m.Reasoning),
			yesNo(m.Vision), price)
	}
	if err := table.Flush(); err != nil {
		return 0, err
	}
	source := "figures of " + models.AsOf()
	if file != "" {
		source += ", with those of " + file
	}
	p.printLine(source)
	return codeDone, nil
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
