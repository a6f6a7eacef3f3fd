package sandbox

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// homeParts are directories of a home in which readable and private ones lie side by side. None is
// readable as a whole.
var homeParts = []string{".cache", ".config", ".local", ".local/share", ".local/state"}

// systemParts stay readable even if their mount is a part of a hidden directory, as in a
// container, whose root may be in the home of its owner.
var systemParts = []string{
	"/bin", "/boot", "/etc", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf", "/home", "/lib",
	"/lib32", "/lib64", "/nix", "/run", "/sbin", "/tmp", "/usr", "/usr/local", "/var", "/var/lib",
	"/var/tmp",
}

// programDirs contain programs: a home directory in one, as some system accounts have, is none.
var programDirs = []string{
	"/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/nix", "/sbin", "/usr",
}

// prefixParts mark the parent of a directory of programs as theirs: they need the rest of it.
var prefixParts = []string{"lib", "lib64", "libexec", "share", "pyvenv.cfg"}

// hider fills in which paths of a plan are hidden. The innermost of Write, Read and Hidden decides
// about a path.
type hider struct {
	*Plan
	mounts  mountTable
	links   resolver
	homes   []string // hidden home directories, by all of their names
	secrets []string // hidden paths in them and elsewhere, by all of their names
	named   []string // readable paths as users name them, over symlinks
}

// hide hides the homes except what builds need, and secrets in that and elsewhere. p.Read, which
// the policy allows, is readable with all that it contains.
func (p *Plan) hide(
	policy Policy, homes []string, getenv func(string) string, links resolver, mounts mountTable,
) {
	h := &hider{Plan: p, mounts: mounts, links: links}
	for _, home := range homes {
		links.list(home)
	}
	allowed := slices.DeleteFunc(mounts.withAliases(p.Read), func(name string) bool {
		return !exists(name) // another mount may cover it
	})
	h.named = slices.Concat(policy.Read, policy.Write)
	names := slices.Concat(secrets(homes, getenv), policy.Hide)
	for _, name := range names {
		if name = links.prefix(name); links.hideable(name) && name != "/" {
			h.secrets = append(h.secrets, name)
		}
	}
	for _, name := range slices.Clone(h.secrets) {
		for _, a := range mounts.aliases(name) {
			if a.of == name || !ofSystem(a.name) {
				h.secrets = append(h.secrets, a.name)
			}
		}
	}
	p.Read = nil
	h.hideHomes(homes)
	if len(h.homes) > 0 {
		h.showNamed(homes[0])
		h.hideHomeAliases()
		h.showVariables(getenv)
		if p.WorkTree != "" {
			h.show(p.WorkTree)
		}
		for _, name := range mounts.withAliases(slices.Concat(p.Read, p.Write)) {
			if exists(name) { // another mount may cover it
				h.show(name)
			}
		}
	}
	p.Hidden = slices.DeleteFunc(append(p.Hidden, h.secrets...), func(name string) bool {
		return slices.ContainsFunc(allowed, func(a string) bool { return Within(name, a) }) ||
			slices.Contains(p.Write, name)
	})
	p.Read = append(p.Read, allowed...)
	h.prune(allowed)
	h.relink()
	p.homes = h.homes
}

// hideHomes hides the homes that are directories of one user. Homes that a policy lets commands
// change are not hidden, except for secrets in them.
func (h *hider) hideHomes(homes []string) {
	for _, home := range homes {
		within := func(dir string) bool { return Within(home, dir) }
		holds := func(dir string) bool { return Within(dir, home) }
		switch {
		case slices.ContainsFunc(h.Write, within):
		case home != "/root" && slices.ContainsFunc(systemDirs, holds),
			slices.ContainsFunc(slices.Concat(kernelDirs, programDirs), within), !h.links.hideable(home):
			h.OpenHomes = append(h.OpenHomes, home)
		default:
			h.homes = append(h.homes, home)
		}
	}
	for _, home := range slices.Clone(h.homes) {
		for _, a := range h.mounts.aliases(home) {
			within := func(dir string) bool { return Within(a.name, dir) }
			if a.of == home && !slices.ContainsFunc(h.Write, within) {
				h.homes = append(h.homes, a.name)
			}
		}
	}
	h.Hidden = slices.Clone(h.homes)
}

// hideHomeAliases hides the parts of homes that are mounted elsewhere.
func (h *hider) hideHomeAliases() {
	for _, home := range slices.Clone(h.homes) {
		for _, a := range h.mounts.aliases(home) {
			within := func(dir string) bool { return Within(a.name, dir) }
			if a.of == home || slices.ContainsFunc(h.homes, within) ||
				slices.ContainsFunc(h.Write, within) || !h.isHidden(a.of) || ofSystem(a.name) {
				continue
			}
			h.homes, h.Hidden = append(h.homes, a.name), append(h.Hidden, a.name)
		}
	}
}

// ofSystem reports whether name is, or contains, one of systemParts.
func ofSystem(name string) bool {
	return slices.ContainsFunc(systemParts, func(part string) bool { return Within(part, name) })
}

// showNamed makes the existing paths of namedInHome readable.
func (h *hider) showNamed(home string) {
	for _, group := range namedInHome {
		for _, name := range group.names {
			name = filepath.Join(home, name)
			if _, ok := h.links.mode(h.links.prefix(name)); ok && h.show(h.links.prefix(name)) {
				h.named = append(h.named, name)
			}
		}
	}
}

// showVariables makes the paths readable that variables name, and the programs of PATH with what
// belongs to them.
func (h *hider) showVariables(getenv func(string) string) {
	for _, v := range namingVariables {
		for _, name := range filepath.SplitList(getenv(v)) {
			h.showByName(name)
		}
	}
	for _, dir := range filepath.SplitList(getenv("PATH")) {
		real, ok := h.showByName(dir)
		if !ok {
			continue
		}
		parent := filepath.Dir(real)
		switch filepath.Base(real) {
		case ".bin":
			h.show(parent)
		case "bin", "sbin", "condabin", "shims":
			has := func(part string) bool { return exists(filepath.Join(parent, part)) }
			if slices.ContainsFunc(prefixParts, has) {
				h.show(parent)
			}
		}
	}
}

// showByName makes a path readable that may lead over symlinks, and returns it without them.
func (h *hider) showByName(name string) (real string, ok bool) {
	if !filepath.IsAbs(name) {
		return "", false
	}
	name = filepath.Clean(name)
	real = h.links.prefix(name)
	if !exists(real) || !h.show(real) {
		return "", false
	}
	h.named = append(h.named, name)
	return real, true
}

// show makes a hidden path readable, and reports whether it is. It refuses a whole home, a secret,
// a mixture of both, and what the user of a sandbox could not reach.
func (h *hider) show(name string) bool {
	if !h.isHidden(name) {
		return true
	}
	within := func(dir string) bool { return Within(name, dir) }
	refused := slices.ContainsFunc(h.secrets, within) || !h.links.hideable(name) ||
		mountable(name) != name ||
		slices.ContainsFunc(h.homes, func(home string) bool {
			return Within(home, name) || slices.ContainsFunc(homeParts, func(part string) bool {
				return name == filepath.Join(home, part)
			})
		})
	if !refused {
		h.Read = append(h.Read, name)
	}
	return !refused
}

// prune removes the paths from Read and Hidden that others make superfluous. Homes stay, so that
// they exist, and so does what the policy allows.
func (h *hider) prune(allowed []string) {
	var hidden, read []string
	for _, name := range h.Hidden {
		if !h.isHidden(filepath.Dir(name)) || slices.Contains(h.homes, name) {
			hidden = append(hidden, name)
		}
	}
	for _, name := range h.Read {
		if h.isHidden(filepath.Dir(name)) || slices.Contains(allowed, name) {
			read = append(read, name)
		}
	}
	slices.Sort(hidden)
	slices.Sort(read)
	h.Hidden, h.Read = slices.Compact(hidden), slices.Compact(read)
}

// isHidden reports whether name, which has no symlinks, is hidden by the plan.
func (p *Plan) isHidden(name string) bool {
	for {
		switch {
		case slices.Contains(p.Write, name), slices.Contains(p.Read, name):
			return false
		case slices.Contains(p.Hidden, name):
			return true
		case name == filepath.Dir(name):
			return false
		}
		name = filepath.Dir(name)
	}
}

// visibleBelow reports whether a hidden path, or a part of it, is to be seen: since it is readable,
// a symlink, or another home.
func (p *Plan) visibleBelow(name string) bool {
	below := func(other string) bool { return Within(other, name) }
	return slices.ContainsFunc(slices.Concat(p.Write, p.Read, p.Hidden), below) ||
		slices.ContainsFunc(slices.Collect(maps.Keys(p.Links)), below)
}

// relink records the symlinks in hidden directories by which readable paths are named.
func (h *hider) relink() {
	for _, name := range h.named {
		for range 40 { // as many as the kernel follows
			link := h.firstLink(name)
			if link == "" {
				break
			}
			target := h.links.prefix(link)
			if h.isHidden(filepath.Dir(link)) {
				if h.Links == nil {
					h.Links = map[string]string{}
				}
				h.Links[link] = target
			}
			name = target + strings.TrimPrefix(name, link)
		}
	}
}

// firstLink returns the outermost symlink in name, or "".
func (h *hider) firstLink(name string) (link string) {
	for dir := filepath.Clean(name); dir != "/"; dir = filepath.Dir(dir) {
		if h.links.prefix(dir) != filepath.Join(h.links.prefix(filepath.Dir(dir)), filepath.Base(dir)) {
			link = dir
		}
	}
	return link
}

// HiddenPaths returns existing paths that are hidden, up to limit of each: secrets in what is
// readable, and the content of home directories.
func (p *Plan) HiddenPaths(limit int) (secrets, home []string) {
	mounts, _ := readMounts()
	mounted := func(name string) bool {
		return slices.ContainsFunc(mounts, func(m *mountinfo.Info) bool { return m.Mountpoint == name })
	}
	var visit func(dir string)
	visit = func(dir string) {
		entries, _ := os.ReadDir(dir) // others can be entered, and not listed
		for _, e := range entries {
			name := filepath.Join(dir, e.Name())
			switch {
			case !p.isHidden(name), mounted(name), !e.IsDir() && !e.Type().IsRegular():
			case p.visibleBelow(name):
				visit(name)
			default:
				home = append(home, name)
			}
		}
	}
	for _, name := range p.Hidden {
		below := func(other string) bool { return Within(other, name) }
		switch {
		case !exists(name), p.belowWritable(name):
		case slices.Contains(p.homes, name) && isDir(name):
			visit(name)
		case !slices.ContainsFunc(slices.Concat(p.Read, p.Write), below):
			secrets = append(secrets, name)
		}
	}
	return secrets[:min(len(secrets), limit)], home[:min(len(home), limit)]
}
