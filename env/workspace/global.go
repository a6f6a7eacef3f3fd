package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// globalRules returns the ignore rules of the user, which hold in all repositories and give way to
// all others. The settings are those of a repository, if there is one: they can name another file.
func (w *Workspace) globalRules(settings []setting) []byte {
	home, _ := os.UserHomeDir()
	folder := os.Getenv("XDG_CONFIG_HOME")
	if folder == "" && home != "" {
		folder = filepath.Join(home, ".config")
	}
	var configs []string
	if os.Getenv("GIT_CONFIG_NOSYSTEM") == "" {
		configs = append(configs, "/etc/gitconfig")
	}
	if global, ok := os.LookupEnv("GIT_CONFIG_GLOBAL"); ok {
		configs = append(configs, global)
	} else {
		configs = append(configs, filepath.Join(folder, "git", "config"), filepath.Join(home,
			".gitconfig"))
	}
	name := filepath.Join(folder, "git", "ignore")
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
	content, err := readHostFile(name)
	w.noteGlobal(name, err)
	return []byte(content)
}

// globalSettings reads settings of the user.
func (w *Workspace) globalSettings(name string) []setting {
	if !filepath.IsAbs(name) || name == os.DevNull {
		return nil
	}
	content, err := readHostFile(name)
	var settings []setting
	if err == nil {
		settings, err = parseConfig([]byte(content))
	}
	w.noteGlobal(name, err)
	return settings
}

func (w *Workspace) noteGlobal(name string, err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.note("ignore rules of yours may not count: %s: %v", name, err)
	}
}

// excludesFile returns the name of the file with ignore rules that settings give, the last of them.
func excludesFile(settings []setting) (name string, ok bool) {
	for _, s := range settings {
		if s.section == "core" && s.subsection == "" && s.key == "excludesfile" {
			name, ok = s.value, true
		}
	}
	return name, ok
}
