package ssh

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	sshconfig "github.com/kevinburke/ssh_config"

	"github.com/sandboxagent/sandboxagent/env"
)

const (
	maxConfig     = 1 << 20
	maxConfigLine = 16 << 10
	// maxInclude bounds how deep files include others, maxFiles how many there are in all.
	maxInclude = 16
	maxFiles   = 256
	// includeKeyword takes the place of Include, so that files are opened here, with the checks that they need.
	includeKeyword = "x-include"
)

// setting is the value of a keyword, and where it stands.
type setting struct {
	keyword string
	args    []string
	file    string
	line    int
}

func (s setting) at() string { return fmt.Sprintf("%s:%d", s.file, s.line) }

// arg is the first argument.
func (s setting) arg() string {
	if len(s.args) == 0 {
		return ""
	}
	return s.args[0]
}

// settings are what the ssh_config says about one host: the first value of each keyword, and all of those that add up.
type settings struct {
	first        map[string]setting
	identities   []setting
	certificates []setting
}

// get returns the first argument of a keyword, or an empty string.
func (s *settings) get(keyword string) string { return s.first[keyword].arg() }

// set takes a value unless an earlier one counts. ProxyJump and ProxyCommand are two names of one thing.
func (s *settings) set(v setting) {
	key := v.keyword
	switch key {
	case "identityfile":
		s.identities = append(s.identities, v)
		return
	case "certificatefile":
		s.certificates = append(s.certificates, v)
		return
	case "proxycommand":
		key = "proxyjump"
	}
	if _, ok := s.first[key]; !ok {
		s.first[key] = v
	}
}

// configReader reads ssh_config files for one host.
type configReader struct {
	machine
	settings
	// alias is the host as it was named, and user the one that was named with it, or empty.
	alias, user string
	note        func(line string)
	files       int
}

// readConfig returns what the files of a target say about a host.
func (f *finder) readConfig(a address) (*settings, error) {
	c := &configReader{
		machine: f.machine, settings: settings{first: map[string]setting{}},
		alias: a.host, user: a.user, note: f.noteOnce,
	}
	if name := f.target.ConfigFile; name != "" {
		if name == os.DevNull {
			return &c.settings, nil
		}
		return &c.settings, c.read(name, c.dot(""), 0)
	}
	if err := c.readIfThere(c.dot("config"), c.dot(""), 0); err != nil {
		return nil, err
	}
	return &c.settings, c.readIfThere(c.config, filepath.Dir(c.config), 0)
}

// readIfThere is read for a file that need not be there.
func (c *configReader) readIfThere(name, dir string, depth int) error {
	if _, err := os.Stat(name); name == "" || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return c.read(name, dir, depth)
}

// read takes what a file says about the host. Names of files that it includes are relative to dir.
func (c *configReader) read(name, dir string, depth int) error {
	if c.files++; depth > maxInclude || c.files > maxFiles {
		return badConfig("config", "%s: too many files that include each other", name)
	}
	data, err := readRegular(name, maxConfig)
	if err != nil {
		return badConfig("config", "%s", cleanText(err.Error()))
	}
	text, heads, err := prepareConfig(string(data))
	if err != nil {
		return badConfig("config", "%s:%v", name, err)
	}
	parsed, err := sshconfig.DecodeBytes([]byte(text))
	if err != nil {
		return badConfig("config", "%s: %s", name, cleanText(err.Error()))
	}
	for i, host := range parsed.Hosts {
		if !host.Matches(c.alias) {
			continue
		}
		if i > 0 && heads[i-1].match && !c.matches(heads[i-1], name, host) {
			continue
		}
		if err := c.take(host, name, dir, depth); err != nil {
			return err
		}
	}
	return nil
}

// take takes the values of a block.
func (c *configReader) take(host *sshconfig.Host, name, dir string, depth int) error {
	for _, node := range host.Nodes {
		kv, ok := node.(*sshconfig.KV)
		if !ok {
			continue
		}
		v := setting{keyword: strings.ToLower(kv.Key), file: name, line: kv.Pos().Line}
		var err error
		if v.args, err = splitArgs(rawValue(kv)); err != nil {
			return badConfig("config", "%s: %s: %v", v.at(), kv.Key, err)
		}
		switch {
		case len(v.args) == 0:
			return badConfig("config", "%s: %s has no value", v.at(), cleanText(kv.Key))
		case v.keyword == includeKeyword:
			err = c.include(v.args, dir, depth)
		default:
			c.set(v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// include reads files that another one includes.
func (c *configReader) include(patterns []string, dir string, depth int) error {
	for _, p := range patterns {
		p = c.tilde(p)
		if !filepath.IsAbs(p) {
			p = filepath.Join(dir, p)
		}
		names, err := filepath.Glob(p)
		if err != nil {
			return badConfig("config", "Include %s: %v", cleanText(p), err)
		}
		for _, name := range names {
			if err := c.readIfThere(name, dir, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// blockHead is a line that begins a block.
type blockHead struct {
	match    bool
	criteria []string
	line     int
}

// prepareConfig makes the text of an ssh_config one that the library reads as the program ssh does: patterns of Host are
// divided by single spaces, Include is left to the caller, and Match as well, whose place a Host for all takes. The
// second result has all Host and Match lines in their order.
func prepareConfig(text string) (string, []blockHead, error) {
	lines := strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n")
	var heads []blockHead
	for i, line := range lines {
		if len(line) > maxConfigLine {
			return "", nil, fmt.Errorf("%d: the line is too long", i+1)
		}
		keyword, rest := cutKeyword(line)
		if strings.ContainsRune(line, 0) || strings.HasPrefix(strings.TrimSpace(line), "=") {
			return "", nil, fmt.Errorf("%d: that is no line of an ssh_config", i+1)
		}
		switch strings.ToLower(keyword) {
		case "include":
			lines[i] = includeKeyword + " " + rest
		case "host", "match":
			args, err := splitArgs(rest)
			if err != nil {
				return "", nil, fmt.Errorf("%d: %s: %w", i+1, keyword, err)
			}
			if len(args) == 0 {
				return "", nil, fmt.Errorf("%d: %s has no value", i+1, keyword)
			}
			h := blockHead{match: strings.EqualFold(keyword, "match"), criteria: args, line: i + 1}
			heads = append(heads, h)
			if lines[i] = "Host " + strings.Join(args, " "); h.match {
				lines[i] = "Host *"
			}
		}
	}
	return strings.Join(lines, "\n"), heads, nil
}

// cutKeyword divides a line of an ssh_config into its keyword and the rest.
func cutKeyword(line string) (keyword, rest string) {
	line = strings.Trim(line, " \t\r")
	i := strings.IndexAny(line, " \t=")
	if i < 0 || strings.HasPrefix(line, "#") {
		return line, ""
	}
	rest = strings.TrimLeft(line[i:], " \t")
	return line[:i], strings.TrimLeft(strings.TrimPrefix(rest, "="), " \t")
}

// rawValue returns a value with its quotes. The library takes the outer ones off, also those of two words.
func rawValue(kv *sshconfig.KV) string {
	bare := *kv
	bare.Comment = ""
	_, rest := cutKeyword(bare.String())
	return rest
}

// splitArgs divides a value into words. Double quotes keep a word with spaces together, and a word that begins with #
// begins a comment.
func splitArgs(s string) ([]string, error) {
	var args []string
	var word strings.Builder
	inWord, quoted := false, false
	end := func() {
		if inWord {
			args = append(args, word.String())
		}
		word.Reset()
		inWord = false
	}
	for i := range len(s) {
		switch b := s[i]; {
		case b == '"':
			quoted = !quoted
			inWord = true
		case !quoted && (b == ' ' || b == '\t' || b == '\r'):
			end()
		case !quoted && !inWord && b == '#':
			return args, nil
		default:
			word.WriteByte(b)
			inWord = true
		}
	}
	if quoted {
		return nil, errors.New("a quote is not closed")
	}
	end()
	return args, nil
}

// readRegular returns the content of a regular file of at most limit bytes. It does not wait for a named pipe.
func readRegular(name string, limit int64) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	switch {
	case info.IsDir():
		return nil, &fs.PathError{Op: "read", Path: name, Err: env.ErrIsDir}
	case !info.Mode().IsRegular():
		return nil, &fs.PathError{Op: "read", Path: name, Err: env.ErrNotRegular}
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("more than %d KiB", limit>>10)}
	}
	return data, nil
}
