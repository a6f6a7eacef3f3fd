package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/llm/openai"
	"github.com/sandboxagent/sandboxagent/runtime/llm/replay"
	"github.com/sandboxagent/sandboxagent/runtime/profile"
)

// keyVariables hold the key of the model's server; the first that is set counts.
var keyVariables = [...]string{"SANDBOXAGENT_API_KEY", "OPENAI_API_KEY"}

const modelForms = "openai/MODEL, openai-compatible/MODEL with --base-url, or script:FILE"

// model is a model that can be asked.
type model struct {
	client  llm.Client
	profile profile.Profile
}

// openModel makes a client for the model that the flags name. It sends nothing.
func openModel(c *cli.Context) (model, error) {
	spec, baseURL := c.String("model"), c.String("base-url")
	if spec == "" {
		return model{}, usagef("no model is given; --model or the variable SANDBOXAGENT_MODEL names one: %s", modelForms)
	}
	if file, ok := strings.CutPrefix(spec, "script:"); ok {
		return openScript(file)
	}
	provider, name, _ := strings.Cut(spec, "/")
	cfg := openai.Config{APIKey: modelKey(), BaseURL: baseURL, Provider: provider}
	switch {
	case name == "", provider != "openai" && provider != "openai-compatible":
		return model{}, usagef("--model: %q is not of a form that is known: %s", spec, modelForms)
	case provider == "openai-compatible" && baseURL == "":
		return model{}, usagef("--model %s needs --base-url, the server's address up to and without /chat/completions", spec)
	case provider == "openai-compatible":
		cfg.API = openai.Chat
	case cfg.APIKey == "":
		return model{}, usagef("--model %s needs a key; set the variable OPENAI_API_KEY, or SANDBOXAGENT_API_KEY", spec)
	}
	client, err := openai.New(cfg)
	if err != nil {
		return model{}, usagef("--model %s: %s", spec, strings.TrimPrefix(err.Error(), "openai: "))
	}
	return model{client, profile.OpenAI(name)}, nil
}

func openScript(file string) (model, error) {
	data, err := readScript(file)
	if err != nil {
		return model{}, usagef("--model script: %s", err)
	}
	script, err := replay.ParseScript(data, file)
	if err != nil {
		return model{}, usagef("--model script: %s", err)
	}
	return model{replay.NewScript(script), profile.OpenAI(cmp.Or(script.Model, "script"))}, nil
}

// maxScript is the size of the largest script, in bytes.
const maxScript = 64 << 20

func readScript(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	data, err := io.ReadAll(io.LimitReader(f, maxScript+1))
	if err == nil && len(data) > maxScript {
		err = fmt.Errorf("%s has more than %d bytes", file, maxScript)
	}
	return data, err
}

func modelKey() string {
	for _, name := range keyVariables {
		if key := strings.TrimSpace(os.Getenv(name)); key != "" {
			return key
		}
	}
	return ""
}
