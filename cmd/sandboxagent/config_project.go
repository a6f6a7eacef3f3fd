package main

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/policy"
)

// limitKeys are the keys by which a repository may limit time, money and machine.
var limitKeys = [...]string{
	"timeout", "start-timeout", "approve-timeout", "max-turns", "max-tool-rounds", "max-tokens",
	"max-cost", "max-processes", "max-retries", "retry-for", "max-retry-wait", "cpus", "memory",
	"pids", "disk",
}

// repositoryKeys are the keys beside those that a repository may set.
var repositoryKeys = [...]string{"model", "image", "workdir", "network", "read-only"}

// repositoryProviders are the providers whose models a repository may select: the key of each goes
// to a server that the repository cannot choose. A script would be the repository's own.
var repositoryProviders = [...]string{"openai", "anthropic", "gemini"}

// projectRoot returns the project of a directory: the nearest directory from it upwards that has a
// .git, else the directory itself; and this directory. Both are absolute, without symlinks.
func projectRoot(dir string) (root, abs string, err error) {
	if abs, err = filepath.Abs(dir); err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", "", err
	}
	for at := abs; ; at = filepath.Dir(at) {
		if _, err := os.Lstat(filepath.Join(at, ".git")); err == nil {
			return at, abs, nil
		}
		if at == filepath.Dir(at) {
			return abs, abs, nil
		}
	}
}

// readProject reads the file of the project, which may be missing. One that user does not trust may
// set little.
func (r *settingsReader) readProject(user configuration) error {
	root, start, err := r.project()
	if err != nil {
		return nil // the command reports a directory that is missing
	}
	r.line.project = root
	trusted := trusts(user.trusted, root)
	c, parseErr := readProjectConfig(root, trusted)
	if c.userOnly.key != "" {
		return usagef("%s belongs in %s only", c.userOnly.subject(), userConfigName())
	}
	var workdir *setting
	for _, s := range c.keys {
		s.repository = !trusted
		if s.name == string(policy.Deny) || s.name == string(policy.Ask) {
			r.rules = append(r.rules, s)
			continue
		}
		if !trusted {
			if err := s.checkRepository(root); err != nil {
				return err
			}
		}
		switch {
		case !trusted && r.limited(s):
		case s.name == "workdir":
			workdir = &s
		default:
			r.ofProject = append(r.ofProject, s)
		}
	}
	if trusted {
		r.line.trusted = filepath.Join(root, configName)
	}
	if workdir != nil {
		err = r.addWorkdir(*workdir, root, start)
	}
	return cmp.Or(err, parseErr)
}

// addWorkdir adds the working directory that the file in root sets, for a program that starts in
// start. A session that goes on has its own. A repository that is not trusted sets it to no
// directory above start, in which commands could change more, and outside of local for runs only,
// since other commands upload no directory without --workdir.
func (r *settingsReader) addWorkdir(s setting, root, start string) error {
	elsewhere := r.workdirElsewhere()
	local := slices.Contains([]string{"", "local"}, r.value("env"))
	uploads := slices.Contains([]string{runName, configShowName}, r.line.command)
	switch {
	case r.before.Dir != "", s.repository && (elsewhere || !local && !uploads):
		return nil
	case !elsewhere:
		dir, err := projectWorkdir(s, root)
		if err != nil {
			return err
		}
		if below, err := filepath.Rel(dir, start); s.repository && err == nil && below != "." &&
			filepath.IsLocal(below) {
			return nil
		}
		s.values = []string{dir}
	}
	r.ofProject = append(r.ofProject, s)
	return nil
}

// readProjectConfig reads the file in the directory root, unless it is the user's.
func readProjectConfig(root string, trusted bool) (configuration, error) {
	name := filepath.Join(root, configName)
	found, err := os.Lstat(name)
	if err != nil {
		return configuration{}, nil
	}
	if own, err := os.Stat(configFile(configName)); err == nil && os.SameFile(own, found) {
		return configuration{}, nil
	}
	if !trusted && !ownedHere(found) {
		return configuration{}, usagef("%s belongs to another user: if you trust it, list %s under %s "+
			"in %s", name, root, trustedKey, userConfigName())
	}
	data, err := readInside(root, configName)
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		err = path.Err
	}
	if err != nil {
		return configuration{}, usagef("%s cannot be read: %s", name, err)
	}
	return parseConfig(data, name, fileFlags())
}

// readInside reads a regular file in the tree root, to which a symlink in it may lead.
func readInside(root, name string) ([]byte, error) {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer dir.Close() //nolint:errcheck // it was only read
	info, err := dir.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("it is not a regular file") // opening it may never end
	}
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	return readOpen(f, maxConfig)
}

// trusts reports whether one of the directories is root.
func trusts(dirs []string, root string) bool {
	project, err := os.Stat(root)
	return err == nil && slices.ContainsFunc(dirs, func(dir string) bool {
		info, err := os.Stat(dir)
		return err == nil && os.SameFile(info, project)
	})
}

// checkRepository reports why the repository in the directory root may not set s.
func (s setting) checkRepository(root string) error {
	value := s.values[0]
	limit := slices.Contains(limitKeys[:], s.name)
	switch name, _, _ := strings.Cut(value, "/"); {
	case !limit && !slices.Contains(repositoryKeys[:], s.name):
	case limit && !(limitOf(s) > 0):
		return usagef("%s: %q is no limit, and a repository lifts none", s.subject(), value)
	case s.name == "model" && !slices.Contains(repositoryProviders[:], name):
		return usagef("%s: a repository may select models of %s only, not %.60q", s.subject(),
			strings.Join(repositoryProviders[:], ", "), value)
	case s.name == "network" && value != "none":
		return usagef("%s: a repository may set none only, not %.60q", s.subject(), value)
	case s.name == "read-only" && !isTrue(value):
		return usagef("%s: a repository may set true only", s.subject())
	default:
		return nil
	}
	allowed := slices.Concat(repositoryKeys[:], limitKeys[:], []string{"deny", "ask"})
	return usagef("%s may not be set by a repository, which may set %s; if you trust this one, list "+
		"%s under %s in %s", s.subject(), strings.Join(allowed, ", "), root, trustedKey,
		userConfigName())
}

func isTrue(value string) bool {
	on, err := strconv.ParseBool(value)
	return err == nil && on
}

// limitOf returns a limit as a number, which is not positive if the value is invalid.
func limitOf(s setting) float64 {
	text := s.values[0]
	if s.name == "memory" || s.name == "disk" {
		size, _ := parseSize(s.name, text) // 0 if invalid
		return float64(size)
	}
	if d, err := time.ParseDuration(text); err == nil {
		return float64(d)
	}
	if n, err := strconv.ParseInt(text, 0, 64); err == nil {
		return float64(n)
	}
	n, _ := strconv.ParseFloat(text, 64)
	return n
}

// limited reports whether the limit of the user's file, or else the default, is stricter than s.
func (r *settingsReader) limited(s setting) bool {
	if !slices.Contains(limitKeys[:], s.name) {
		return false
	}
	f := findFlag(fileFlags(), s.name).(documentedFlag)
	own := setting{name: s.name, values: []string{f.GetDefaultText()}} // a text if none
	for _, list := range [][]setting{r.user, r.profile} {
		if found := findSetting(list, s.name); found != nil {
			own = *found
		}
	}
	limit := limitOf(own)
	return limit > 0 && limit <= limitOf(s)
}

// projectWorkdir returns the directory that s names from the root of its project on. In a project
// that is not trusted it must be inside.
func projectWorkdir(s setting, root string) (string, error) {
	dir := s.values[0]
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(root, dir)
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", usagef("%s: %s", s.subject(), err)
	}
	if rel, err := filepath.Rel(root, dir); s.repository && (err != nil || !filepath.IsLocal(rel)) {
		return "", usagef("%s: %.60q is not in the directory of the repository", s.subject(),
			s.values[0])
	}
	return dir, nil
}

// parseRules returns the policy of the rules in the file of a project; nil without any.
func parseRules(list []setting) (*policy.Policy, error) {
	if len(list) == 0 {
		return nil, nil
	}
	p := &policy.Policy{}
	for _, action := range []policy.Action{policy.Deny, policy.Ask} {
		s := findSetting(list, string(action))
		if s == nil {
			continue
		}
		for _, text := range s.values {
			r, err := policy.ParseRule(action, text, s.place)
			if err != nil {
				return nil, usagef("%s: %s", s.subject(), err)
			}
			p.Rules = append(p.Rules, r)
		}
	}
	return p, nil
}

// baseURLName is the flag with the address of a model.
const baseURLName = "base-url"

// providerOf returns the provider of a model.
func providerOf(model string) string {
	name, _, _ := strings.Cut(model, "/")
	return name
}

// checkModel keeps a repository from selecting which key goes to the address, or who gets the key,
// that the user has for a model of another provider.
func (l *commandLine) checkModel() error {
	model := l.value("model")
	if !l.sources["--model"].repository || providerOf(model) == providerOf(l.userModel) ||
		l.value("base-url") == "" && os.Getenv(anyKey) == "" {
		return nil
	}
	return usagef("--model: a repository may not select %s: --base-url and %s are for your own "+
		"model; give --model", model, anyKey)
}
