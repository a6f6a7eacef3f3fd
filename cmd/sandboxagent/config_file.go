package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"go.yaml.in/yaml/v3"

	"github.com/sandboxagent/sandboxagent/policy"
)

// maxConfig bounds a configuration file, in bytes.
const maxConfig = 1 << 20

// Keys of the user's file that are no flags.
const (
	profilesKey = "profiles"
	trustedKey  = "trusted"
)

// configuration is the content of a file.
type configuration struct {
	file string
	keys []setting
	// profiles and trusted, the trusted directories, are those of the user's file.
	profiles map[string][]setting
	trusted  []string
	// userOnly is the place of the first key that only the user's file has; its key is empty if none.
	userOnly source
}

// profile returns the settings of a profile.
func (c *configuration) profile(name string) ([]setting, error) {
	if found, ok := c.profiles[name]; ok {
		return found, nil
	}
	known := strings.Join(slices.Sorted(maps.Keys(c.profiles)), ", ")
	switch {
	case c.file == "":
		return nil, usagef("--%s: no profile %q: the file %s is missing", profileName, name,
			userConfigName())
	case known == "":
		known = "it has none"
	}
	return nil, usagef("--%s: no profile %q in %s (known: %s)", profileName, name, c.file, known)
}

// userConfigName returns the name of the user's file.
func userConfigName() string {
	if name := configFile(configName); name != "" {
		return name
	}
	return "your " + configName
}

// readUserConfig reads the user's file, which may be missing.
func readUserConfig() (configuration, error) {
	name := configFile(configName)
	if name == "" {
		return configuration{}, nil
	}
	info, err := os.Stat(name)
	if err != nil { // also a home directory that is none, or of another user
		return configuration{}, nil
	}
	if !info.Mode().IsRegular() {
		return configuration{}, usagef("%s is not a regular file", name)
	}
	data, err := readFile(name, maxConfig)
	if err != nil {
		return configuration{}, usagef("the configuration cannot be read: %s", err)
	}
	return parseConfig(data, name, fileFlags())
}

// parseConfig parses a configuration file, whose keys are the names of flags; file is its name.
// With an error, a usageError, it returns the keys before the mistake.
func parseConfig(data []byte, file string, flags []cli.Flag) (configuration, error) {
	c := configParser{flags: flags, configuration: configuration{file: file}}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return c.configuration, nil
	case err != nil:
		text := strings.TrimPrefix(err.Error(), "yaml: ")
		if line, rest, ok := strings.Cut(strings.TrimPrefix(text, "line "), ": "); ok && line != text {
			return c.configuration, usagef("%s:%s: %s", file, line, rest)
		}
		return c.configuration, usagef("%s: %s", file, text)
	}
	if err := dec.Decode(&second); !errors.Is(err, io.EOF) {
		return c.configuration, usagef("%s has more than one document, or a mistake after it", file)
	}
	err := c.mapping(doc.Content[0], source{}, func(at source, key string, v *yaml.Node) error {
		switch key {
		case profilesKey:
			return c.parseProfiles(at, v)
		case trustedKey:
			return c.parseTrusted(at, v)
		}
		s, err := c.setting(at, key, v)
		c.keys = append(c.keys, s...)
		return err
	})
	return c.configuration, err
}

// configParser parses a configuration file with keys for flags.
type configParser struct {
	flags []cli.Flag
	configuration
}

// mapping calls use for each key of a mapping, which are names. at is the mapping.
func (c *configParser) mapping(
	n *yaml.Node, at source, use func(at source, key string, v *yaml.Node) error,
) error {
	if n.Kind != yaml.MappingNode {
		at.place = fmt.Sprintf("%s:%d", c.file, n.Line)
		if at.key == "" {
			return usagef("%s: keys with values are required, such as model: openai/gpt-5", at.place)
		}
		return usagef("%s: a mapping is required", at.subject())
	}
	seen := make(map[string]bool)
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, in := n.Content[i], at
		in.place = fmt.Sprintf("%s:%d", c.file, name.Line)
		if in.key != "" {
			in.key += "."
		}
		in.key += oneLine(fmt.Sprintf("%.60s", name.Value))
		if name.Kind != yaml.ScalarNode || name.Value == "" {
			return usagef("%s: a key is not a name", in.place)
		}
		if seen[name.Value] {
			return usagef("%s is given twice", in.subject())
		}
		seen[name.Value] = true
		if err := use(in, name.Value, n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

func (c *configParser) parseProfiles(at source, n *yaml.Node) error {
	c.only(at)
	c.profiles = make(map[string][]setting)
	return c.mapping(n, at, func(at source, name string, v *yaml.Node) error {
		at.profile = name
		c.profiles[name] = nil
		return c.mapping(v, at, func(at source, key string, v *yaml.Node) error {
			s, err := c.setting(at, key, v)
			c.profiles[name] = append(c.profiles[name], s...)
			return err
		})
	})
}

// parseTrusted reads directories, in which ~/ is the home directory.
func (c *configParser) parseTrusted(at source, n *yaml.Node) error {
	c.only(at)
	dirs, err := c.list(at, n)
	for _, dir := range dirs {
		if !strings.HasPrefix(dir, "~/") && !filepath.IsAbs(dir) {
			return usagef("%s: %.60q is not the absolute name of a directory", at.subject(), dir)
		}
		c.trusted = append(c.trusted, c.absolute(dir))
	}
	return err
}

// only remembers the place of a key that only the user's file has.
func (c *configParser) only(at source) {
	if c.userOnly.key == "" {
		c.userOnly = at
	}
}

// setting parses the value of a key that is the name of a flag.
func (c *configParser) setting(at source, key string, n *yaml.Node) ([]setting, error) {
	f := findFlag(c.flags, key)
	switch {
	case slices.Contains(argumentsOnly[:], key):
		return nil, usagef("%s is never set in a file; give it as a flag", at.subject())
	case (f == nil || f.Names()[0] != key) && similar(key, c.flags) != "":
		return nil, usagef("%s is unknown; did you mean %s?", at.subject(), similar(key, c.flags))
	case f == nil || f.Names()[0] != key:
		return nil, usagef("%s is unknown (\"config schema\" has the keys)", at.subject())
	}
	s := setting{name: key, source: at}
	var err error
	if isList(f) {
		s.values, err = c.list(at, n)
	} else {
		var value string
		value, err = c.scalar(at, f, n)
		s.values = []string{value}
	}
	if err != nil || len(s.values) == 0 { // an empty list sets nothing
		return nil, err
	}
	if slices.Contains(fileKeys[:], key) {
		for i, name := range s.values {
			s.values[i] = c.absolute(name)
		}
	}
	return []setting{s}, nil
}

// fileKeys are keys whose values are names of files or directories.
var fileKeys = [...]string{
	"agents", "models", "policy", "log", "helper-binary", "identity", "known-hosts", "kubeconfig",
	"pod-template", "agent-template",
}

// absolute returns a name of a file as the directory of the configuration has it, so that it means
// the same file everywhere; ~/ is the home directory. That of a built-in policy stays.
func (c *configParser) absolute(name string) string {
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if filepath.IsAbs(name) || slices.Contains(policy.Presets(), name) {
		return name
	}
	return filepath.Join(filepath.Dir(c.file), name)
}

// list returns the texts of a list.
func (c *configParser) list(at source, n *yaml.Node) (texts []string, err error) {
	if n.Kind != yaml.SequenceNode {
		return nil, usagef("%s: a list is required, such as [A, B]", at.subject())
	}
	for _, item := range n.Content {
		text, err := c.scalar(at, nil, item)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// scalar returns the value of a flag, or with a nil f an item of a list.
func (c *configParser) scalar(at source, f cli.Flag, n *yaml.Node) (string, error) {
	_, isBool := f.(*cli.BoolFlag)
	tag := n.ShortTag()
	switch {
	case n.Kind != yaml.ScalarNode:
		return "", usagef("%s: one value is required, no list or mapping", at.subject())
	case strings.TrimSpace(n.Value) == "" || tag == "!!null":
		return "", usagef("%s is empty; give it a value or leave it out", at.subject())
	case isBool != (tag == "!!bool") && isBool:
		return "", usagef("%s: %.60q is not a boolean; use true or false", at.subject(), n.Value)
	case isBool != (tag == "!!bool"):
		return "", usagef("%s: %s is not a text; put it in quotes", at.subject(), n.Value)
	case !slices.Contains([]string{"!!str", "!!int", "!!float", "!!bool", "!!timestamp"}, tag):
		return "", usagef("%s: a value of the kind %.60q is not known", at.subject(), tag)
	}
	if kind := invalidKind(f, n.Value); kind != "" {
		return "", usagef("%s: %.60q is not %s", at.subject(), n.Value, kind)
	}
	return n.Value, nil
}
