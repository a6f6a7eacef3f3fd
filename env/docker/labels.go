package docker

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"
)

const (
	labelPrefix = "sandboxagent."
	// labelSession has the name of the session; all that belongs to one has it.
	labelSession = labelPrefix + "session"
	// labelKind says what a container or volume is for.
	labelKind = labelPrefix + "kind"
	// labelOwner is who made it: user and machine.
	labelOwner = labelPrefix + "owner"
	// labelProcess is the process that made it, on the machine of its owner.
	labelProcess = labelPrefix + "process"
	// labelLease is how long a container outlives a client that is gone.
	labelLease = labelPrefix + "lease"
	// labelImage is the reference of the image.
	labelImage = labelPrefix + "image"
	// labelReady is the time by which a container has started, or never will.
	labelReady = labelPrefix + "start-by"

	kindSandbox = "sandbox"
	kindLoader  = "loader" // a container that is never started: it fills the helper's volume
	kindHelper  = "helper" // the helper's volume
	kindVolume  = "volume" // a volume that goes with a container

	namePrefix   = "sandboxagent-"
	loaderSuffix = "-loader"
)

// newSession returns a name for a session.
func newSession() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// owner names this user and this machine.
func owner() string {
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	return name + "@" + machine()
}

// machine names this machine.
func machine() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "unknown"
	}
	return name
}

// thisProcess names this process for as long as the machine runs.
func thisProcess() string {
	return fmt.Sprintf("%d:%s:%s", os.Getpid(), startOf(os.Getpid()), namespace())
}

// processEnded reports whether the process of a label is known not to run on this machine any more. Numbers mean something
// in the namespace only that they are of.
func processEnded(label string) bool {
	parts := strings.Split(label, ":")
	if len(parts) < 3 || parts[1] == "" || namespace() == "" || strings.Join(parts[2:], ":") != namespace() {
		return false
	}
	pid, err := strconv.Atoi(parts[0])
	return err == nil && pid > 0 && startOf(pid) != parts[1]
}

// labels are those of a container of this configuration.
func (c Config) labels(kind string, now time.Time) map[string]string {
	all := make(map[string]string, len(c.Labels)+7)
	for name, value := range c.Labels {
		all[name] = value
	}
	all[labelSession] = c.Session
	all[labelImage] = c.Image
	all[labelKind] = kind
	all[labelOwner] = owner()
	all[labelProcess] = thisProcess()
	all[labelLease] = c.TTL.String()
	all[labelReady] = now.Add(c.StartTimeout).UTC().Format(time.RFC3339)
	return all
}
