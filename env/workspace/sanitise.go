package workspace

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/vars"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// The identity of commits in the environment where the repository names none. It has to be some:
// git refuses to commit without.
const (
	defaultName  = "sandboxagent"
	defaultEmail = "sandboxagent@localhost"
)

// A check decides which value of a setting goes along, perhaps changed, and whether it does.
type check func(value string) (string, bool)

// allowedSettings are the settings that go along, by section and key; all others stay. None of them
// names a program, a file or a credential. Settings that git would only take from a section with a
// name have a dot before the key.
var allowedSettings = map[string]check{
	"core.filemode": boolean, "core.ignorecase": boolean, "core.symlinks": boolean,
	"core.precomposeunicode": boolean,
	"core.quotepath":         boolean, "core.sparsecheckout": boolean,
	"core.sparsecheckoutcone": boolean,
	"index.sparse":            boolean,
	"core.autocrlf":           word, "core.eol": word, "core.safecrlf": word,
	"user.name": line, "user.email": line,
	"branch..remote": word, "branch..pushremote": word, "branch..merge": refName,
	"branch..rebase": word,
	"remote..url":    address, "remote..fetch": refSpec, "remote..tagopt": option,
	"remote..promisor": boolean, "remote..partialclonefilter": filterSpec,
	"submodule..active": boolean, "submodule..url": address, "submodule..path": line,
	"extensions.objectformat": word, "extensions.partialclone": word,
}

// Patterns are compiled when they are first needed, since every start of a program counts.
var (
	wordPattern   = lazyregexp.New(`^[\w./-]*$`)
	refPattern    = lazyregexp.New(`^refs/[^\x00-\x20\x7f:~^?*\[\\]+$`)
	specPattern   = lazyregexp.New(`^[+^]?refs/[^\x00-\x20\x7f:~^?\[\\]+(:refs/[^\x00-\x20\x7f:~^?\[\\]+)?$`)
	optionPattern = lazyregexp.New(`^--(no-)?tags$`)
	filterPattern = lazyregexp.New(`^(blob:none|blob:limit=\w+|tree:\d+)$`)
	// scpPattern is an address as scp takes it: host:path, perhaps with a user before it.
	scpPattern = lazyregexp.New(`^(?:[^/:@]+(?::[^/@]*)?@)?(\[[^\]/]+\]|[^/:@]{2,}):([^:].*)$`)
	// objectPattern is the name of an object.
	objectPattern = lazyregexp.New(`^(?:[0-9a-f]{40}|[0-9a-f]{64})$`)
)

func boolean(v string) (string, bool) {
	return v, slices.Contains([]string{"", "true", "false", "yes", "no", "on", "off", "0", "1"},
		strings.ToLower(v))
}

func matching(p func() *regexp.Regexp, v string) (string, bool) { return v, p().MatchString(v) }
func word(v string) (string, bool)                              { return matching(wordPattern, v) }
func refName(v string) (string, bool)                           { return matching(refPattern, v) }
func refSpec(v string) (string, bool)                           { return matching(specPattern, v) }
func option(v string) (string, bool) {
	return matching(optionPattern,
		v)
}

func filterSpec(v string) (string, bool) { return matching(filterPattern, v) }

// line is text for people.
func line(v string) (string, bool) { return v, !strings.ContainsAny(v, "\x00\n\r") }

// address takes from the address of a remote repository what may be a credential: the user, the
// query and the fragment. It leaves out what is no address of a form that is known to hold nothing
// else.
func address(v string) (string, bool) {
	if strings.ContainsAny(v, "\x00\n\r") || strings.Contains(v, "::") {
		return "", false // The latter names a program that makes the connection.
	}
	if strings.Contains(v, "://") {
		u, err := url.Parse(v)
		if err != nil || !slices.Contains(schemes(), strings.ToLower(u.Scheme)) {
			return "", false
		}
		v = (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
	} else if m := scpPattern().FindStringSubmatch(v); m != nil {
		v = m[1] + ":" + m[2]
	}
	// A slash in a password makes it look like a path.
	return v, !strings.Contains(v, "@")
}

// schemes are those of addresses whose parts are known.
func schemes() []string {
	return []string{"http", "https", "ssh", "git", "git+ssh", "ssh+git", "ftp", "ftps", "file"}
}

// repositoryFormat is what the settings say about how a repository is stored.
type repositoryFormat struct {
	// sha256 says that objects are named by SHA-256.
	sha256 bool
	// promisor says that objects may be missing, which a remote repository has promised to deliver.
	promisor bool
	// filters says that contents pass through programs on their way into and out of the working tree.
	filters bool
	// bare says that there is no working tree, unless it is a linked one.
	bare bool
	// noFileMode says that files of the host do not tell whether they are executable, only the index
	// does.
	noFileMode bool
	// converts says that the ends of lines differ between the index and the working tree.
	converts bool
	// worktreeConfig says that each working tree has settings of its own.
	worktreeConfig bool
}

// readFormat finds out how a repository is stored; an error says why git elsewhere could not read a
// copy of it.
func readFormat(settings []setting) (repositoryFormat, error) {
	var f repositoryFormat
	for _, s := range settings {
		value := strings.ToLower(s.value)
		switch s.section + "." + s.key {
		case "extensions.objectformat":
			if f.sha256 = value == "sha256"; !f.sha256 && value != "sha1" {
				return f, fmt.Errorf("its objects are named by %q, which is not supported; clone it with "+
					"--object-format=sha1", s.value)
			}
		case "extensions.refstorage":
			if value != "files" {
				return f, fmt.Errorf("its references are stored as %q, which is not supported; run git refs "+
					"migrate --ref-format=files", s.value)
			}
		case "extensions.worktreeconfig":
			f.worktreeConfig = s.isTrue()
		case "extensions.partialclone":
			f.promisor = true
		case "extensions.noop", "extensions.noop-v1", "extensions.preciousobjects",
			"extensions.relativeworktrees":
		case "remote.promisor":
			f.promisor = f.promisor || s.isTrue()
		case "core.bare":
			f.bare = s.isTrue()
		case "core.filemode":
			f.noFileMode = !s.isTrue()
		case "core.autocrlf":
			f.converts = s.isTrue() || value == "input"
		default:
			if s.section == "extensions" {
				return f, fmt.Errorf("it uses the git extension %q, which is not supported", s.key)
			}
			f.filters = f.filters || s.section == "filter"
		}
	}
	return f, nil
}

// sanitise returns the settings that go along.
func sanitise(settings []setting) []setting {
	version := "0"
	kept := []setting{}
	has := map[string]bool{}
	for _, s := range settings {
		id := s.section + "." + s.key
		if s.section == "branch" || s.section == "remote" || s.section == "submodule" {
			id = s.section + ".." + s.key
			if s.subsection == "" || strings.ContainsAny(s.subsection, "\n\x00") ||
				strings.Contains(s.subsection, "://") {
				continue
			}
		} else if s.subsection != "" {
			continue
		}
		check, ok := allowedSettings[id]
		if !ok {
			continue
		}
		if s.value, ok = check(s.value); !ok || vars.HasSecret(s.value) || vars.HasSecret(s.subsection) {
			continue
		}
		if s.section == "extensions" {
			version = "1"
		}
		has[id] = true
		kept = append(kept, s)
	}
	out := []setting{
		{section: "core", key: "repositoryformatversion", value: version},
		{section: "core", key: "bare", value: "false"},
		{section: "core", key: "logallrefupdates", value: "true"},
	}
	if !has["user.name"] {
		kept = append(kept, setting{section: "user", key: "name", value: defaultName})
	}
	if !has["user.email"] {
		kept = append(kept, setting{section: "user", key: "email", value: defaultEmail})
	}
	return append(out, kept...)
}
