package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
)

// globalRules returns the ignore rules of the user, which have the lowest precedence. The settings
// of a repository, nil without one, can name another file.
func (w *Workspace) globalRules(settings []gitrepo.Setting) []byte {
	home, _ := os.UserHomeDir()
	configDir := os.Getenv("XDG_CONFIG_HOME")
	if configDir == "" && home != "" {
		configDir = filepath.Join(home, ".config")
	}
	var configs []string
	if os.Getenv("GIT_CONFIG_NOSYSTEM") == "" {
		configs = append(configs, "/etc/gitconfig")
	}
	if global, ok := os.LookupEnv("GIT_CONFIG_GLOBAL"); ok {
		configs = append(configs, global)
	} else {
		configs = append(configs,
			filepath.Join(configDir, "git", "config"), filepath.Join(home, ".gitconfig"))
	}
	name := filepath.Join(configDir, "git", "ignore")
	for _, config := range configs {
		if to, ok := excludesFile(w.globalSettings(config)); ok {
			name = to
		}
	}
	if to, ok := excludesFile(settings); ok {
		name = to
	}
	if below, ok := strings.CutPrefix(name, "~/"); ok {
		name = filepath.Join(home, below)
	}
	if !filepath.IsAbs(name) {
		return nil
	}
	content, err := gitrepo.ReadHostFile(name)
	w.warnGlobal(name, err)
	return []byte(content)
}

// globalSettings reads a configuration file of the user.
func (w *Workspace) globalSettings(name string) []gitrepo.Setting {
	if !filepath.IsAbs(name) || name == os.DevNull {
		return nil
	}
	content, err := gitrepo.ReadHostFile(name)
	var settings []gitrepo.Setting
	if err == nil {
		settings, err = gitrepo.ParseConfig([]byte(content))
	}
	w.warnGlobal(name, err)
	return settings
}

func (w *Workspace) warnGlobal(name string, err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.warn("the ignore rules of this user may have no effect: %s: %v", name, err)
	}
}

// excludesFile returns the last core.excludesFile of settings.
func excludesFile(settings []gitrepo.Setting) (name string, ok bool) {
	for _, s := range settings {
		if s.Section == "core" && s.Subsection == "" && s.Key == "excludesfile" {
			name, ok = s.Value, true
		}
	}
	return name, ok
}
