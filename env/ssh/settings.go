package ssh

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env/internal/helper"
)

// settingsTime bounds one call of the OpenSSH client, which may run commands of "Match exec".
const settingsTime = 10 * time.Second

// settings are the values of the ssh_config for one host, by the keyword in lower case.
type settings map[string][]string

// get returns the first value of a keyword, or an empty string. The value "none" is empty too.
func (s settings) get(keyword string) string {
	if v := s[keyword]; len(v) > 0 && !strings.EqualFold(v[0], "none") {
		return v[0]
	}
	return ""
}

// yes reports whether a keyword is on.
func (s settings) yes(keyword string) bool {
	return slices.Contains([]string{"yes", "true"}, s.get(keyword))
}

// number returns a keyword as a number, or 0.
func (s settings) number(keyword string) int {
	n, err := strconv.ParseUint(s.get(keyword), 10, 31)
	if err != nil {
		return 0
	}
	return int(n)
}

// localFiles are the SSH files of this machine.
type localFiles struct {
	// home is the user's home directory; it may be empty.
	home string
	// passwdHome is the one that the OpenSSH client uses, whatever $HOME holds.
	passwdHome string
}

func findLocalFiles() localFiles {
	var l localFiles
	if home, err := os.UserHomeDir(); err == nil {
		l.home = home
	}
	l.passwdHome = l.home
	if u, err := user.Current(); err == nil {
		l.passwdHome = u.HomeDir
	}
	return l
}

// dot returns the name of a file in ~/.ssh, or nothing without a home directory.
func (l localFiles) dot(name string) string {
	if l.home == "" {
		return ""
	}
	return filepath.Join(l.home, ".ssh", name)
}

// tilde replaces a leading ~ with the home directory.
func (l localFiles) tilde(name string) string {
	rest, ok := strings.CutPrefix(name, "~")
	if !ok || rest != "" && rest[0] != '/' && rest[0] != filepath.Separator {
		return name
	}
	return filepath.Join(l.home, rest)
}

// configFile returns the argument of -F, and whether any ssh_config applies.
func (l localFiles) configFile(named string) (file string, ok bool) {
	if named == "" && l.home != l.passwdHome {
		named = l.dot("config")
		if _, err := os.Stat(named); err != nil {
			return "", false
		}
	}
	return named, named != os.DevNull
}

// readSettings returns the output of "ssh -G" for a host, or no settings without an OpenSSH client.
func (r *resolver) readSettings(ctx context.Context, a address) (settings, error) {
	file, ok := r.configFile(r.target.ConfigFile)
	if !ok {
		return nil, nil
	}
	program, err := exec.LookPath("ssh")
	if err != nil {
		if r.target.ConfigFile != "" {
			return nil, badConfig("config", "%s: it takes an OpenSSH client to read it", file)
		}
		r.warnOnce("no OpenSSH client is installed, so ~/.ssh/config and /etc/ssh/ssh_config have no " +
			"effect")
		return nil, nil
	}
	args := []string{"-G", "-T"}
	for _, o := range [][2]string{{"-F", file}, {"-l", a.user}, {"-p", a.port}} {
		if o[1] != "" {
			args = append(args, o[0], o[1])
		}
	}
	args = append(args, "--", a.host)
	cmd := isolate(exec.Command(program, args...)) //nolint:noctx // runBounded kills its tree
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := runBounded(ctx, cmd, settingsTime)
	if err != nil {
		return nil, badConfig("config", "ssh -G %s: %v", a.host, err)
	}
	s := settings{}
	for line := range strings.Lines(string(out)) {
		keyword, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
		keyword = strings.ToLower(keyword)
		s[keyword] = append(s[keyword], value)
	}
	return s, nil
}

// runBounded returns the output of a command, which it kills with its tree when ctx or the time
// ends.
func runBounded(ctx context.Context, cmd *exec.Cmd, limit time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no end within %s", limit))
	defer cancel()
	var out bytes.Buffer
	var stderr helper.StderrTail
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &stderr, time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = killTree(cmd.Process) })
	err := cmd.Wait()
	if !stop() {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s (%w)", cleanText(stderr.String()), err)
	}
	return out.Bytes(), nil
}

// resolver finds the route to a host.
type resolver struct {
	localFiles
	target Target
	warn   func(line string)
	// warned has the lines that were reported: jump hosts share one ssh_config.
	warned map[string]bool
	hops   []*hop
}

func (r *resolver) warnOnce(line string) {
	if !r.warned[line] {
		r.warned[line] = true
		r.warn(line)
	}
}

// add appends a host, and before it its jump hosts. trail holds the hosts that need it. With
// jumped, the host before it in hops is its jump host.
func (r *resolver) add(ctx context.Context, spec, field string, trail []string, jumped bool) error {
	a, err := parseAddress(spec)
	if err != nil {
		return badConfig(field, "%s: %v", strconv.Quote(spec), err)
	}
	circular := slices.Contains(trail, spec)
	trail = append(slices.Clip(trail), spec)
	if circular {
		return badConfig("config", "ProxyJump is circular: %s; the jump host itself takes "+
			"\"ProxyJump none\"", cleanText(strings.Join(trail, ", ")))
	}
	s, err := r.readSettings(ctx, a)
	if err != nil {
		return err
	}
	h, err := r.makeHop(a, s)
	if err != nil {
		return err
	}
	if jumps := s.get("proxyjump"); jumps != "" && !jumped {
		for i, jump := range strings.Split(jumps, ",") {
			if err := r.add(ctx, jump, "config", trail, i > 0); err != nil {
				return err
			}
		}
	} else if jumped {
		h.proxyCommand = ""
	}
	if r.hops = append(r.hops, h); len(r.hops) > maxHops {
		return badConfig("config", "ProxyJump goes over more than %d hosts", maxHops)
	}
	return nil
}

// makeHop returns a host from its address and its settings. Target has precedence.
func (r *resolver) makeHop(a address, s settings) (*hop, error) {
	h := &hop{
		alias: a.host,
		host:  cmp.Or(s.get("hostname"), a.host),
		user:  cmp.Or(a.user, s.get("user"), localUser()),
		port:  cmp.Or(a.port, s.get("port"), "22"),

		identitiesOnly: s.yes("identitiesonly"),
		hashNames:      s.yes("hashknownhosts"),
		timeout: cmp.Or(r.target.Timeout, time.Duration(s.number("connecttimeout"))*time.Second,
			DefaultDialTimeout),
		aliveInterval: defaultAliveInterval,
		aliveCount:    defaultAliveCount,
	}
	if n := s.number("serveraliveinterval"); n > 0 {
		h.aliveInterval = time.Duration(n) * time.Second
		h.aliveCount = max(1, s.number("serveralivecountmax"))
	}
	var err error
	if h.port, err = checkPort(h.port); err != nil {
		return nil, badConfig("config", "Port: %v", err)
	}
	if err := checkUser(h.user); err != nil {
		return nil, badConfig("host", "%s: %v; name one as in user@%s", a.host, err, a.host)
	}
	if err := checkHost(h.host); err != nil {
		return nil, badConfig("config", "HostName: %v", err)
	}
	h.knownAddress = net.JoinHostPort(strings.ToLower(h.host), h.port)
	if alias := s.get("hostkeyalias"); alias != "" {
		if err := checkHost(alias); err != nil {
			return nil, badConfig("config", "HostKeyAlias: %v", err)
		}
		h.knownAddress = net.JoinHostPort(strings.ToLower(alias), "22")
	}
	tokens := r.tokens(h, s.get("hostkeyalias"))
	if h.proxyCommand = s.get("proxycommand"); h.proxyCommand != "" && s.get("proxyjump") == "" {
		if h.proxyCommand, err = expandTokens(h.proxyCommand, tokens); err != nil {
			return nil, badConfig("config", "ProxyCommand: %v", err)
		}
	}
	if err := r.addKeys(h, s, tokens); err != nil {
		return nil, err
	}
	if err := r.addKnownHosts(h, s); err != nil {
		return nil, err
	}
	r.warnUnsupported(s)
	return h, nil
}

// tokens returns the values of the tokens of ssh_config(5) that depend on the host.
func (r *resolver) tokens(h *hop, alias string) map[byte]string {
	t := map[byte]string{
		'%': "%", 'h': h.host, 'n': h.alias, 'p': h.port, 'r': h.user, 'u': localUser(), 'd': r.home,
		'k': cmp.Or(alias, h.host), 'i': strconv.Itoa(os.Getuid()),
	}
	if name, err := os.Hostname(); err == nil {
		t['l'] = name
		t['L'], _, _ = strings.Cut(name, ".")
	}
	return t
}

// expandTokens replaces the tokens of a value, such as %h.
func expandTokens(s string, tokens map[byte]string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i++; i == len(s) {
			return "", errors.New("a percent sign at the end")
		}
		value, ok := tokens[s[i]]
		if !ok {
			return "", fmt.Errorf("the token %%%c is not supported", s[i])
		}
		b.WriteString(value)
	}
	return b.String(), nil
}

// files returns the names of files with tokens, variables and ~ expanded. "none" names none.
func (r *resolver) files(names []string, tokens map[byte]string) ([]string, error) {
	var files []string
	for _, name := range names {
		if strings.EqualFold(name, "none") {
			continue
		}
		expanded, err := expandTokens(name, tokens)
		if err != nil {
			return nil, badConfig("config", "%s: %v", cleanText(name), err)
		}
		if strings.Contains(expanded, "${") {
			expanded = os.ExpandEnv(expanded)
		}
		files = append(files, r.tilde(expanded))
	}
	return files, nil
}

// addKeys sets the keys that are tried, and the agent.
func (r *resolver) addKeys(h *hop, s settings, tokens map[byte]string) (err error) {
	for _, name := range r.target.Identities {
		h.identities = append(h.identities, identityFile{path: name, named: true})
	}
	names := s["identityfile"]
	if len(names) == 0 {
		names = []string{"~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"}
	}
	if h.identitiesOnly && len(h.identities) > 0 { // the defaults, which are not distinguished
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool {
			return strings.HasPrefix(n, "~/.ssh/id_")
		})
	}
	found, err := r.files(names, tokens)
	if err != nil {
		return err
	}
	for _, name := range found {
		if !slices.ContainsFunc(h.identities, func(id identityFile) bool { return id.path == name }) {
			h.identities = append(h.identities, identityFile{path: name})
		}
	}
	if h.certificates, err = r.files(s["certificatefile"], tokens); err != nil {
		return err
	}
	h.agent = "SSH_AUTH_SOCK"
	if v := s["identityagent"]; len(v) > 0 {
		h.agent = s.get("identityagent")
	}
	switch name, isVar := strings.CutPrefix(h.agent, "$"); {
	case h.agent == "SSH_AUTH_SOCK":
		h.agent = os.Getenv(h.agent)
	case isVar && !strings.HasPrefix(name, "{"):
		h.agent = os.Getenv(name)
	case h.agent != "":
		sockets, err := r.files([]string{h.agent}, tokens)
		if err != nil {
			return err
		}
		h.agent = sockets[0]
	}
	return nil
}

// addKnownHosts sets which host keys are trusted.
func (r *resolver) addKnownHosts(h *hop, s settings) error {
	switch v := s.get("stricthostkeychecking"); {
	case r.target.AcceptNew || v == "accept-new":
		h.acceptNew = true
	case v == "false" || v == "no" || v == "off":
		return badConfig("StrictHostKeyChecking", "the ssh_config turns it off for %s, with which "+
			"anybody could be the host; set it to accept-new, which trusts the key of a new host and "+
			"keeps it", h.alias)
	}
	if s.get("revokedhostkeys") != "" {
		return badConfig("config", "RevokedHostKeys is not supported; lines with @revoked in a "+
			"known_hosts file are")
	}
	if name := r.target.KnownHosts; name != "" {
		h.userKnown = []string{name}
		return nil
	}
	user := s["userknownhostsfile"]
	elsewhere := filepath.Join(r.passwdHome, ".ssh", "known_hosts")
	if len(user) == 0 || r.home != r.passwdHome && user[0] == elsewhere+" "+elsewhere+"2" {
		user = []string{r.dot("known_hosts") + " " + r.dot("known_hosts2")}
	}
	h.userKnown = splitFiles(user)
	global := s["globalknownhostsfile"]
	if len(global) == 0 && filepath.Separator == '/' {
		global = []string{"/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"}
	}
	h.globalKnown = splitFiles(global)
	return nil
}

// splitFiles divides a value of "ssh -G", which does not quote, into the absolute names in it.
func splitFiles(values []string) (files []string) {
	for _, field := range strings.Split(strings.Join(values, " "), " ") {
		switch {
		case field == "none" || field == "":
		case filepath.IsAbs(field) || len(files) == 0:
			files = append(files, field)
		default: // a name with a space in it
			files[len(files)-1] += " " + field
		}
	}
	return files
}

// warnUnsupported reports settings that have no effect here, and whose absence is no less safe.
func (r *resolver) warnUnsupported(s settings) {
	for _, keyword := range []string{
		"addressfamily", "bindaddress", "bindinterface",
		"knownhostscommand", "pkcs11provider",
	} {
		if v := s.get(keyword); v != "" && v != "any" {
			r.warnOnce(fmt.Sprintf("the ssh_config sets %s, which is not supported and has no effect",
				keyword))
		}
	}
}
