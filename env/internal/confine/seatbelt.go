package confine

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/env"
)

// services are those of macOS that give out what is in keychains, and those that start programs, which are not confined then.
var services = []string{
	"com.apple.SecurityServer", "com.apple.securityd", "com.apple.securityd.xpc",
	"com.apple.coreservices.launchservicesd", "com.apple.launchservicesd",
}

// Operations of files. What may be read may be copied and loaded as code.
const (
	readFiles   = "file-read* file-clone file-map-executable"
	changeFiles = readFiles + " file-write*"
)

// seatbelt is a profile in the making. Names of files are parameters: sandbox-exec gets them as arguments of their own, so that
// none of them, whatever it consists of, is read as a part of the profile.
type seatbelt struct {
	text   strings.Builder
	values []string
	places map[string]int // of values
}

// rule adds a rule. Of two that have conditions, and apply, the later one counts; one without any is for what no other applies to.
func (s *seatbelt) rule(action string, conditions ...string) {
	s.text.WriteString("(" + action)
	for _, c := range conditions {
		s.text.WriteString(" " + c)
	}
	s.text.WriteString(")\n")
}

// each adds a rule for names; none if there are none, since that would be one for everything.
func (s *seatbelt) each(action, how string, names []string) {
	var conditions []string
	for _, name := range names {
		conditions = append(conditions, s.named(how, name))
	}
	if len(conditions) > 0 {
		s.rule(action, conditions...)
	}
}

// named returns the condition that something is a name, if how is "literal", or is that or below, if it is "subpath".
func (s *seatbelt) named(how, name string) string {
	i, ok := s.places[name]
	if !ok {
		i = len(s.values)
		s.values, s.places[name] = append(s.values, name), i
	}
	return "(" + how + ` (param "` + parameter(i) + `"))`
}

func parameter(i int) string { return "P" + strconv.Itoa(i) }

// profile returns what sandbox-exec is told: a profile, and the names of files in it, as "NAME=value".
func (p *Plan) profile() (text string, parameters []string, err error) {
	s := &seatbelt{places: make(map[string]int)}
	s.rule("version 1")
	s.rule("allow default")
	p.files(s)
	s.rule("deny file-mount")
	s.rule("deny file-unmount")
	s.rule("deny user-preference-write") // others would write them to files
	for _, operation := range []string{"signal", "process-info*", "mach-priv-task-port"} {
		s.rule("deny " + operation)
		s.rule("allow "+operation, "(target same-sandbox)")
	}
	// What these start is started by others, and is not confined.
	s.rule("deny lsopen")
	s.rule("deny appleevent-send")
	s.rule("deny job-creation")
	for _, name := range services {
		s.rule("deny mach-lookup", `(global-name "`+name+`")`)
	}
	p.sockets(s)
	for i, value := range s.values {
		if !utf8.ValidString(value) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return "", nil, fmt.Errorf("a profile cannot have the name %q in it", value)
		}
		parameters = append(parameters, parameter(i)+"="+value)
	}
	return s.text.String(), parameters, nil
}

// files adds the rules about files.
func (p *Plan) files(s *seatbelt) {
	s.rule("deny file-write*")
	s.rule("allow file-write*", `(literal "/dev/null")`, `(literal "/dev/zero")`, `(literal "/dev/tty")`, `(literal "/dev/ptmx")`,
		`(literal "/dev/dtracehelper")`, `(subpath "/dev/fd")`, `(regex #"^/dev/ttys[0-9]+$")`)
	s.rule("deny "+changeFiles, `(regex #"^/dev/(r?disk|bpf)")`) // root reads them
	change := p.changed()
	hide := func(hidden []string) {
		s.each("deny "+changeFiles, "subpath", hidden)
		s.each("allow file-read-metadata", "literal", leading(hidden, slices.Concat(p.Read, change)))
		s.each("allow "+readFiles, "subpath", slices.DeleteFunc(slices.Clone(p.Read), func(name string) bool {
			return !slices.ContainsFunc(hidden, func(h string) bool { return Inside(name, h) })
		}))
	}
	hide(p.Hidden)
	s.each("allow "+changeFiles, "subpath", change)
	// What is hidden stays so below what was allowed since.
	again := slices.DeleteFunc(slices.Clone(p.Hidden), func(name string) bool { return !p.below(name) })
	hide(again)
	kept := slices.Concat(p.Keep, p.Absent, p.Unmade)
	s.each("deny file-write*", "subpath", kept)
	// Rules are about names. Whoever could rename a folder, or give a file a second name, could get around them.
	s.each("deny file-write-unlink", "literal", append(change, p.between(append(kept, again...))...))
	s.rule("deny file-link", `(subpath "/")`)
	s.rule("deny file-write-setugid", `(subpath "/")`)
}

// sockets adds the rules about sockets.
func (p *Plan) sockets(s *seatbelt) {
	if !p.Network {
		s.rule("deny network*")
		return
	}
	s.rule("deny network-outbound", "(remote unix-socket)")
	for _, name := range []string{"/private/var/run/mDNSResponder", "/private/var/run/syslog"} {
		s.rule("allow network-outbound", `(remote unix-socket (literal "`+name+`"))`)
	}
	for _, name := range p.changed() {
		s.rule("allow network-outbound", "(remote unix-socket "+s.named("subpath", name)+")")
	}
}

// changed returns what may be changed.
func (p *Plan) changed() []string {
	if p.Temp == "" {
		return slices.Clone(p.Write)
	}
	return append(slices.Clone(p.Write), p.Temp)
}

// leading returns the folders that are hidden and lead to names that are not.
func leading(hidden, names []string) (dirs []string) {
	for _, name := range names {
		for _, h := range hidden {
			for dir := name; Inside(name, h) && dir != h; {
				if dir = filepath.Dir(dir); !slices.Contains(dirs, dir) {
					dirs = append(dirs, dir)
				}
			}
		}
	}
	slices.Sort(dirs)
	return dirs
}

// hold makes empty files and folders where nothing is to come into being: a name in other letters, which may be the same name
// to the file system, then stands for what is there. Tidy removes them.
func (p *Plan) hold() error {
	for _, name := range p.Absent {
		var err error
		if filepath.Base(name) == "hooks" {
			err = os.Mkdir(name, 0o755)
		} else {
			var f *os.File
			if f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644); err == nil {
				err = f.Close()
			}
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// tried returns an error about what can be done though the profile forbids it. Outside are folders in any of which a file could
// be made without the profile.
func (p *Plan) tried(outside []string) error {
	if err := p.triedOutside(outside); err != nil {
		return err
	}
	for _, name := range slices.Concat(p.Keep, p.Absent) {
		if err := tryChange(name); err == nil {
			return fmt.Errorf("%s can be changed", name)
		}
	}
	for _, name := range p.Hidden {
		if !slices.Contains(p.Write, name) && readable(name) {
			return fmt.Errorf("%s is not hidden", name)
		}
	}
	if err := tryChange(p.Temp); err != nil {
		return fmt.Errorf("the folder for temporary files: %w", err)
	}
	if p.Network {
		return nil
	}
	return tryNetwork()
}

// triedOutside returns an error if a file can be made in one of some folders, or if the profile has refused that in none.
func (p *Plan) triedOutside(outside []string) error {
	refused := false
	for _, dir := range outside {
		if slices.ContainsFunc(p.changed(), func(w string) bool { return Inside(dir, w) }) {
			continue
		}
		err := tryChange(dir)
		if err == nil {
			return fmt.Errorf("%s can be changed", dir)
		}
		refused = refused || errors.Is(err, syscall.EPERM)
	}
	if !refused {
		return errors.New("there is no folder by which to tell that files are confined")
	}
	return nil
}

// tryChange opens a file to be changed, which it is not, or makes a file in a folder, and removes it.
func tryChange(name string) error {
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	flags, made := os.O_WRONLY|os.O_APPEND, false
	switch {
	case info.IsDir():
		name = filepath.Join(name, ".sandboxagent-"+strings.ToLower(rand.Text()))
		flags, made = os.O_WRONLY|os.O_CREATE|os.O_EXCL, true
	case !info.Mode().IsRegular():
		return &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		return err
	}
	_ = f.Close()
	if made {
		_ = os.Remove(name)
	}
	return nil
}

// readable reports whether a file can be opened, or a folder be listed.
func readable(name string) bool {
	info, err := os.Lstat(name)
	switch {
	case err != nil:
		return false
	case info.IsDir():
		_, err = os.ReadDir(name)
	case info.Mode().IsRegular():
		var f *os.File
		if f, err = os.Open(name); err == nil {
			_ = f.Close()
		}
	default:
		return false
	}
	return err == nil
}

// tryNetwork returns an error if there is a network. Nothing is sent.
func tryNetwork() error {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err == nil {
		_ = l.Close()
	}
	if !errors.Is(err, syscall.EPERM) {
		return errors.New("the process can listen on its network")
	}
	c, err := net.Dial("udp4", "192.0.2.1:9") // an address of examples
	if err == nil {
		_ = c.Close()
		return errors.New("the process can use the network")
	}
	return nil
}

// bySandboxExec returns what the profile is for.
func (p *Plan) bySandboxExec() []env.Guarantee {
	by := func(promise env.Promise, strength env.Strength, text string) env.Guarantee {
		if strength == env.BestEffort {
			text = "sandbox-exec with a profile that has not been tested on macOS: " + text
		}
		return env.Guarantee{Promise: promise, Strength: strength, By: text}
	}
	all := []env.Guarantee{
		by(env.Isolation, env.BestEffort, "services of the system do what they are asked for"),
		by(env.ConfinedWrites, env.BestEffort, "no writing elsewhere, which was tried at the start; devices of terminals are written to"),
		by(env.HiddenSecrets, env.BestEffort, "no reading in the places in a list, and no keychain; secrets elsewhere are seen"),
		by(env.NoNetwork, env.BestEffort, "no sockets of a network, loopback included, which was tried at the start"),
		by(env.HiddenSockets, env.BestEffort, "no unix socket can be connected to"),
		by(env.HiddenProcesses, env.Absent, "other processes are seen, with their arguments and variables; the profile keeps signals from them"),
		by(env.NoNewRights, env.BestEffort, "macOS starts no set-id program in a sandbox; the profile allows no mount"),
		by(env.KeptHooks, env.BestEffort, "no writing to hooks and settings of the repository; those of other repositories in the folder are not kept"),
	}
	if p.Network {
		for i, g := range all {
			switch g.Promise {
			case env.NoNetwork:
				all[i] = by(g.Promise, env.Absent, "the network of this machine was asked for")
			case env.HiddenSockets:
				all[i] = by(g.Promise, env.BestEffort, "no unix socket can be connected to, but those in folders that may be changed, of name resolution and of the log")
			}
		}
	}
	return all
}
