package ssh

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	gossh "golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

const (
	// maxKnownHosts bounds a known_hosts file, and maxKnownLine one of its lines; longer ones are as good as bad.
	maxKnownHosts = 16 << 20
	maxKnownLine  = 64 << 10
)

// Markers of lines of known_hosts files.
const (
	markAuthority = "cert-authority"
	markRevoked   = "revoked"
)

// knownLine is a line of a known_hosts file.
type knownLine struct {
	file string
	line int
	// mark is one of the markers, or empty.
	mark  string
	hosts []string
	key   gossh.PublicKey
}

// known describes the line for people.
func (l *knownLine) known() KnownKey {
	return KnownKey{File: l.file, Line: l.line, Type: l.key.Type(), Fingerprint: gossh.FingerprintSHA256(l.key)}
}

// matches reports whether the line is about a host, by its name in known_hosts files.
func (l *knownLine) matches(name string) bool {
	found := false
	for _, p := range l.hosts {
		if strings.HasPrefix(p, "|") {
			found = found || matchHashed(p, name)
			continue
		}
		p, negated := strings.CutPrefix(strings.ToLower(p), "!")
		if p == "" || !matchPattern(barePattern(p), name) {
			continue
		}
		if negated {
			return false
		}
		found = true
	}
	return found
}

// barePattern returns a pattern without the port that every host has.
func barePattern(p string) string {
	if rest, ok := strings.CutPrefix(p, "["); ok {
		if host, ok := strings.CutSuffix(rest, "]:22"); ok {
			return host
		}
	}
	return p
}

// matchHashed reports whether a hash of known_hosts is that of a name.
func matchHashed(hashed, name string) bool {
	parts := strings.Split(hashed, "|")
	if len(parts) != 4 || parts[1] != "1" {
		return false
	}
	salt, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil {
		return false
	}
	want, err := base64.StdEncoding.DecodeString(parts[3])
	if err != nil {
		return false
	}
	mac := hmac.New(sha1.New, salt)
	mac.Write([]byte(name))
	return subtle.ConstantTimeCompare(mac.Sum(nil), want) == 1
}

// knownName returns the name that known_hosts files have for a host. That of an alias has no port.
func knownName(host, port string, alias bool) string {
	host = strings.ToLower(host)
	if alias {
		return host
	}
	return knownhosts.Normalize(net.JoinHostPort(host, port))
}

// parseKnownLine reads a line of a known_hosts file. There is none in an empty one or a comment.
func parseKnownLine(text []byte) (*knownLine, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || text[0] == '#' {
		return nil, nil
	}
	if len(text) > maxKnownLine {
		return nil, errors.New("it is too long")
	}
	mark, hosts, key, _, rest, err := gossh.ParseKnownHosts(text)
	switch {
	case err != nil:
		return nil, err
	case mark != "" && mark != markAuthority && mark != markRevoked:
		return nil, errors.New("its marker is not known")
	case len(rest) > 0:
		return nil, errors.New("it is more than one line")
	}
	return &knownLine{mark: mark, hosts: hosts, key: key}, nil
}

// parseKnownHosts returns the good lines of a known_hosts file, and a text for each bad one.
func parseKnownHosts(file string, data []byte) (lines []*knownLine, bad []string) {
	for i, text := range bytes.Split(data, []byte("\n")) {
		l, err := parseKnownLine(text)
		if err != nil {
			bad = append(bad, fmt.Sprintf("%s:%d: the line does not count: %v", file, i+1, err))
			continue
		}
		if l != nil {
			l.file, l.line = file, i+1
			lines = append(lines, l)
		}
	}
	return lines, bad
}

// maxBadLines bounds how many bad lines of a file people are told of.
const maxBadLines = 3

// readKnownHosts returns the lines of known_hosts files. Those that are not there have none.
func readKnownHosts(files []string, note func(string)) ([]*knownLine, error) {
	var all []*knownLine
	for _, name := range files {
		if name == "" || name == os.DevNull {
			continue
		}
		data, err := readRegular(name, maxKnownHosts)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, badConfig("known-hosts", "%s", cleanText(err.Error()))
		}
		lines, bad := parseKnownHosts(name, data)
		all = append(all, lines...)
		for i, text := range bad {
			if i == maxBadLines {
				note(fmt.Sprintf("%s: %d more lines do not count", name, len(bad)-i))
				break
			}
			note(text)
		}
	}
	return all, nil
}

// appendKnownHost adds a line to a known_hosts file, in one write, so that lines of several programs do not mix.
func appendKnownHost(file, name string, key gossh.PublicKey, hash bool) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if hash {
		name = knownhosts.HashHostname(name)
	}
	line := name + " " + key.Type() + " " + base64.StdEncoding.EncodeToString(key.Marshal()) + "\n"
	f, err := os.OpenFile(file, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // for the ways out with another error
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if size := info.Size(); size > 0 {
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = "\n" + line
		}
	}
	if _, err := f.WriteString(line); err != nil {
		return err
	}
	return f.Close()
}
