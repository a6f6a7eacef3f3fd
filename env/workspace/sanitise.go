package workspace

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env/internal/gitrepo"
	"github.com/sandboxagent/sandboxagent/env/vars"
	"github.com/sandboxagent/sandboxagent/internal/lazyregexp"
)

// The default identity of commits in the environment; git refuses to commit without one.
const (
	defaultName  = "sandboxagent"
	defaultEmail = "sandboxagent@localhost"
)

// A check returns the uploaded value of a setting, perhaps changed, and whether it is uploaded.
type check func(value string) (string, bool)

// allowedSettings are the uploaded settings, by section and key; all others stay on the host. None
// of them names a program, a file or a credential. Two dots stand for a section with a name.
var allowedSettings = map[string]check{
	"core.filemode":              boolean,
	"core.ignorecase":            boolean,
	"core.symlinks":              boolean,
	"core.precomposeunicode":     boolean,
	"core.quotepath":             boolean,
	"core.sparsecheckout":        boolean,
	"core.sparsecheckoutcone":    boolean,
	"core.autocrlf":              word,
	"core.eol":                   word,
	"core.safecrlf":              word,
	"index.sparse":               boolean,
	"user.name":                  line,
	"user.email":                 line,
	"branch..remote":             word,
	"branch..pushremote":         word,
	"branch..merge":              refName,
	"branch..rebase":             word,
	"remote..url":                address,
	"remote..fetch":              refSpec,
	"remote..tagopt":             option,
	"remote..promisor":           boolean,
	"remote..partialclonefilter": filterSpec,
	"submodule..active":          boolean,
	"submodule..url":             address,
	"submodule..path":            line,
	"extensions.objectformat":    word,
	"extensions.partialclone":    word,
}

// specSide is one side of a refspec.
const specSide = `refs/[^\x00-\x20\x7f:~^?\[\\]+`

var (
	wordPattern   = lazyregexp.New(`^[\w./-]*$`)
	refPattern    = lazyregexp.New(`^refs/[^\x00-\x20\x7f:~^?*\[\\]+$`)
	specPattern   = lazyregexp.New(`^[+^]?` + specSide + `(:` + specSide + `)?$`)
	optionPattern = lazyregexp.New(`^--(no-)?tags$`)
	filterPattern = lazyregexp.New(`^(blob:none|blob:limit=\w+|tree:\d+)$`)
	// scpPattern is an address in scp syntax: [user@]host:path.
	scpPattern = lazyregexp.New(`^(?:[^/:@]+(?::[^/@]*)?@)?(\[[^\]/]+\]|[^/:@]{2,}):([^:].*)$`)
	// objectPattern is an object ID.
	objectPattern = lazyregexp.New(`^(?:[0-9a-f]{40}|[0-9a-f]{64})$`)
)

var (
	word       = matching(wordPattern)
	refName    = matching(refPattern)
	refSpec    = matching(specPattern)
	option     = matching(optionPattern)
	filterSpec = matching(filterPattern)
)

func boolean(v string) (string, bool) {
	return v, slices.Contains([]string{"", "true", "false", "yes", "no", "on", "off", "0", "1"},
		strings.ToLower(v))
}

func matching(p func() *regexp.Regexp) check {
	return func(v string) (string, bool) { return v, p().MatchString(v) }
}

// line is one line of any text.
func line(v string) (string, bool) { return v, !strings.ContainsAny(v, "\x00\n\r") }

// address removes the parts of a remote repository's address that may be credentials: the user, the
// query and the fragment. It refuses addresses of unknown forms.
func address(v string) (string, bool) {
	if strings.ContainsAny(v, "\x00\n\r") || strings.Contains(v, "::") {
		return "", false // "::" names a remote helper, a program.
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
	// A password with a slash parses as a path.
	return v, !strings.Contains(v, "@")
}

// schemes are those of the addresses that address can parse.
func schemes() []string {
	return []string{"http", "https", "ssh", "git", "git+ssh", "ssh+git", "ftp", "ftps", "file"}
}

// repositoryFormat is the storage format of a repository, from its settings.
type repositoryFormat struct {
	// promisor: objects may be missing, which a remote repository is expected to deliver.
	promisor bool
	// filters: programs convert contents between index and working tree.
	filters bool
	// bare: the only working trees are linked ones.
	bare bool
	// noFileMode: only the index records which files are executable.
	noFileMode bool
	// converts: line endings may differ between index and working tree.
	converts bool
	// worktreeConfig: each working tree has its own settings as well.
	worktreeConfig bool
}

// readFormat returns the storage format; the error is for one that another git may not be able to
// read.
func readFormat(settings []gitrepo.Setting) (repositoryFormat, error) {
	var f repositoryFormat
	for _, s := range settings {
		value := strings.ToLower(s.Value)
		switch s.Section + "." + s.Key {
		case "extensions.objectformat":
			if value != "sha256" && value != "sha1" {
				return f, fmt.Errorf("its object format %q is not supported (clone it with "+
					"--object-format=sha1)", s.Value)
			}
		case "extensions.refstorage":
			if value != "files" {
				return f, fmt.Errorf("its reference format %q is not supported (run git refs migrate "+
					"--ref-format=files)", s.Value)
			}
		case "extensions.worktreeconfig":
			f.worktreeConfig = s.IsTrue()
		case "extensions.partialclone":
			f.promisor = true
		case "extensions.noop", "extensions.noop-v1", "extensions.preciousobjects",
			"extensions.relativeworktrees":
		case "remote.promisor":
			f.promisor = f.promisor || s.IsTrue()
		case "core.bare":
			f.bare = s.IsTrue()
		case "core.filemode":
			f.noFileMode = !s.IsTrue()
		case "core.autocrlf":
			f.converts = s.IsTrue() || value == "input"
		default:
			if s.Section == "extensions" {
				return f, fmt.Errorf("it uses the git extension %q, which is not supported", s.Key)
			}
			f.filters = f.filters || s.Section == "filter"
		}
	}
	return f, nil
}

// sanitise returns the uploaded settings.
func sanitise(settings []gitrepo.Setting) []gitrepo.Setting {
	version := "0"
	kept := []gitrepo.Setting{}
	has := map[string]bool{}
	for _, s := range settings {
		id := s.Section + "." + s.Key
		if s.Section == "branch" || s.Section == "remote" || s.Section == "submodule" {
			id = s.Section + ".." + s.Key
			if s.Subsection == "" || strings.ContainsAny(s.Subsection, "\n\x00") ||
				strings.Contains(s.Subsection, "://") {
				continue
			}
		} else if s.Subsection != "" {
			continue
		}
		check, ok := allowedSettings[id]
		if !ok {
			continue
		}
		if s.Value, ok = check(s.Value); !ok || vars.HasSecret(s.Value) || vars.HasSecret(s.Subsection) {
			continue
		}
		if s.Section == "extensions" {
			version = "1"
		}
		has[id] = true
		kept = append(kept, s)
	}
	out := []gitrepo.Setting{
		{Section: "core", Key: "repositoryformatversion", Value: version},
		{Section: "core", Key: "bare", Value: "false"},
		{Section: "core", Key: "logallrefupdates", Value: "true"},
	}
	if !has["user.name"] {
		kept = append(kept, gitrepo.Setting{Section: "user", Key: "name", Value: defaultName})
	}
	if !has["user.email"] {
		kept = append(kept, gitrepo.Setting{Section: "user", Key: "email", Value: defaultEmail})
	}
	return append(out, kept...)
}
