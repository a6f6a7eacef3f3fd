package ssh

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// finder finds the way to a host.
type finder struct {
	machine
	target Target
	note   func(line string)
	// noted are lines that were told; several hosts have the same ssh_config.
	noted map[string]bool
	hops  []*hop
}

func (f *finder) noteOnce(line string) {
	if !f.noted[line] {
		f.noted[line] = true
		f.note(line)
	}
}

// add adds a host, and before it those on the way to it. The trail holds the hosts that it is on the way to. Direct means
// that the way to it is there already.
func (f *finder) add(spec, field string, trail []string, direct bool) error {
	a, err := parseAddress(spec)
	if err != nil {
		return badConfig(field, "%s: %v", strconv.Quote(spec), err)
	}
	around := slices.Contains(trail, spec)
	trail = append(slices.Clip(trail), spec)
	if around {
		return badConfig("config", "ProxyJump leads around in a circle: %s; the jump host itself takes \"ProxyJump none\"", cleanText(strings.Join(trail, ", ")))
	}
	s, err := f.readConfig(a)
	if err != nil {
		return err
	}
	h, err := f.makeHop(a, s)
	if err != nil {
		return err
	}
	if !direct {
		jumps, err := s.jumps()
		if err != nil {
			return err
		}
		for i, j := range jumps {
			if err := f.add(j, "config", trail, i > 0); err != nil {
				return err
			}
		}
	}
	if f.hops = append(f.hops, h); len(f.hops) > maxHops {
		return badConfig("config", "ProxyJump leads over more than %d hosts", maxHops)
	}
	return nil
}

// jumps returns the hosts of ProxyJump.
func (s *settings) jumps() ([]string, error) {
	v, ok := s.first["proxyjump"]
	switch {
	case !ok || strings.EqualFold(v.arg(), "none"):
		return nil, nil
	case v.keyword == "proxycommand":
		return nil, badConfig("config", "%s: ProxyCommand is not supported; ProxyJump is, and \"ProxyCommand none\" goes there at once", v.at())
	}
	return strings.Split(v.arg(), ","), nil
}

// makeHop makes a host of what was named and what the ssh_config says.
func (f *finder) makeHop(a address, s *settings) (*hop, error) {
	h := &hop{
		alias: a.host,
		host:  a.host,
		user:  cmp.Or(a.user, s.get("user"), localUser()),
		port:  cmp.Or(a.port, s.get("port"), "22"),
	}
	var err error
	if h.port, err = checkPort(h.port); err != nil {
		return nil, badConfig("config", "%s: Port: %v", s.first["port"].at(), err)
	}
	if err := checkUser(h.user); err != nil {
		return nil, badConfig("host", "%s: %v; name one as in user@%s", a.host, err, a.host)
	}
	if v, ok := s.first["hostname"]; ok {
		h.host, err = expandTokens(v.arg(), map[byte]string{'h': a.host})
		if err == nil {
			err = checkHost(h.host)
		}
		if err != nil {
			return nil, badConfig("config", "%s: HostName: %v", v.at(), err)
		}
	}
	if v, ok := s.first["hostkeyalias"]; ok {
		if err := checkHost(v.arg()); err != nil {
			return nil, badConfig("config", "%s: HostKeyAlias: %v", v.at(), err)
		}
	}
	h.knownAs = knownName(cmp.Or(s.get("hostkeyalias"), h.host), h.port, s.get("hostkeyalias") != "")
	e := &expander{machine: f.machine, tokens: f.tokens(h)}
	if err := f.addKeys(h, s, e); err != nil {
		return nil, err
	}
	if err := f.addKnownHosts(h, s, e); err != nil {
		return nil, err
	}
	if h.timeout, err = f.timeout(s); err != nil {
		return nil, err
	}
	f.noteUnsupported(s)
	return h, nil
}

// tokens returns the values of the tokens of file names.
func (f *finder) tokens(h *hop) map[byte]string {
	t := map[byte]string{
		'h': h.host, 'n': h.alias, 'p': h.port, 'r': h.user, 'u': localUser(), 'd': f.home, 'k': h.knownAs,
		'i': strconv.Itoa(os.Getuid()),
	}
	if name, err := os.Hostname(); err == nil {
		t['l'] = name
		t['L'], _, _ = strings.Cut(name, ".")
	}
	return t
}

// expander makes names of files from values.
type expander struct {
	machine
	tokens map[byte]string
}

func (e *expander) file(v setting, arg string) (string, error) {
	s, err := expandTokens(arg, e.tokens)
	if err == nil {
		s, err = expandVars(s)
	}
	if err != nil {
		return "", badConfig("config", "%s: %s: %v", v.at(), v.keyword, err)
	}
	return e.tilde(s), nil
}

// files returns the names of files that the values name. "none" names none.
func (e *expander) files(values ...setting) ([]string, error) {
	var names []string
	for _, v := range values {
		for _, arg := range v.args {
			if strings.EqualFold(arg, "none") {
				continue
			}
			name, err := e.file(v, arg)
			if err != nil {
				return nil, err
			}
			names = append(names, name)
		}
	}
	return names, nil
}

// addKeys says which keys are tried.
func (f *finder) addKeys(h *hop, s *settings, e *expander) error {
	for _, name := range f.target.Identities {
		h.identities = append(h.identities, identityFile{path: name, named: true})
	}
	found, err := e.files(s.identities...)
	if err != nil {
		return err
	}
	if h.only, err = s.yes("identitiesonly"); err != nil {
		return err
	}
	if len(s.identities) == 0 && f.home != "" && (!h.only || len(f.target.Identities) == 0) {
		for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
			found = append(found, f.dot(name))
		}
	}
	for _, name := range found {
		if !slices.ContainsFunc(h.identities, func(id identityFile) bool { return id.path == name }) {
			h.identities = append(h.identities, identityFile{path: name})
		}
	}
	if h.certificates, err = e.files(s.certificates...); err != nil {
		return err
	}
	v, ok := s.first["identityagent"]
	switch arg := v.arg(); {
	case !ok || arg == "SSH_AUTH_SOCK":
		h.agent = os.Getenv("SSH_AUTH_SOCK")
	case strings.EqualFold(arg, "none"):
	case strings.HasPrefix(arg, "$") && !strings.HasPrefix(arg, "${"):
		h.agent = os.Getenv(arg[1:])
	default:
		h.agent, err = e.file(v, arg)
	}
	return err
}

// addKnownHosts says which keys of hosts count.
func (f *finder) addKnownHosts(h *hop, s *settings, e *expander) error {
	var err error
	if h.acceptNew, err = f.acceptsNew(s); err != nil {
		return err
	}
	if h.hash, err = s.yes("hashknownhosts"); err != nil {
		return err
	}
	if v, ok := s.first["revokedhostkeys"]; ok && !strings.EqualFold(v.arg(), "none") {
		return badConfig("config", "%s: RevokedHostKeys is not supported; lines with @revoked in a known_hosts file are", v.at())
	}
	if name := f.target.KnownHosts; name != "" {
		h.userKnown = []string{name}
		return nil
	}
	if v, ok := s.first["userknownhostsfile"]; ok {
		if h.userKnown, err = e.files(v); err != nil {
			return err
		}
	} else if f.home != "" {
		h.userKnown = []string{f.dot("known_hosts"), f.dot("known_hosts2")}
	}
	h.globalKnown = f.known
	if v, ok := s.first["globalknownhostsfile"]; ok {
		h.globalKnown, err = e.files(v)
	}
	return err
}

// acceptsNew reports whether the key of a host that is not known is taken.
func (f *finder) acceptsNew(s *settings) (bool, error) {
	v := s.first["stricthostkeychecking"]
	switch strings.ToLower(v.arg()) {
	case "", "yes", "true", "ask":
		return f.target.AcceptNew, nil
	case "accept-new":
		return true, nil
	case "no", "off", "false":
		if f.target.AcceptNew {
			return true, nil
		}
		return false, badConfig("config", "%s: \"StrictHostKeyChecking %s\" would let anybody be the host, which is not supported;"+
			" \"StrictHostKeyChecking accept-new\", or --accept-new-host-key, takes the key of a new host and keeps to it", v.at(), v.arg())
	}
	return false, badConfig("config", "%s: StrictHostKeyChecking: %s is none of yes, ask, accept-new", v.at(), strconv.Quote(v.arg()))
}

// yes returns the value of a keyword that is yes or no; no is the default.
func (s *settings) yes(keyword string) (bool, error) {
	v := s.first[keyword]
	switch strings.ToLower(v.arg()) {
	case "yes", "true":
		return true, nil
	case "", "no", "false":
		return false, nil
	}
	return false, badConfig("config", "%s: %s: %s is neither yes nor no", v.at(), keyword, strconv.Quote(v.arg()))
}

// timeout returns how long a connection may take.
func (f *finder) timeout(s *settings) (time.Duration, error) {
	v, ok := s.first["connecttimeout"]
	if f.target.Timeout > 0 {
		return f.target.Timeout, nil
	}
	if !ok || strings.EqualFold(v.arg(), "none") {
		return DefaultDialTimeout, nil
	}
	if n, err := strconv.ParseUint(v.arg(), 10, 31); err == nil && n > 0 {
		return time.Duration(n) * time.Second, nil
	}
	if d, err := time.ParseDuration(v.arg()); err == nil && d > 0 && d < math.MaxInt32*time.Second {
		return d, nil
	}
	return 0, badConfig("config", "%s: ConnectTimeout: %s is no number of seconds above 0", v.at(), strconv.Quote(v.arg()))
}

// noteUnsupported tells of what the ssh_config says about the way to a host that is not supported and that, left out,
// makes nothing less safe.
func (f *finder) noteUnsupported(s *settings) {
	for _, keyword := range []string{
		"addressfamily", "bindaddress", "bindinterface", "canonicalizehostname", "hostkeyalgorithms", "knownhostscommand",
		"pkcs11provider",
	} {
		v, ok := s.first[keyword]
		if !ok || slices.Contains([]string{"any", "no", "none"}, strings.ToLower(v.arg())) {
			continue
		}
		f.noteOnce(fmt.Sprintf("%s: %s is not supported and does not count", v.at(), keyword))
	}
}
