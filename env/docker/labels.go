package docker

import (
	"fmt"
	"maps"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"
)

const (
	labelPrefix = "sandboxagent."
	// labelSession is the name of the session, on its container and volumes.
	labelSession = labelPrefix + "session"
	// labelKind is the purpose of a container, volume or image.
	labelKind = labelPrefix + "kind"
	// labelOwner is the creator, user@machine.
	labelOwner = labelPrefix + "owner"
	// labelProcess identifies the creating process on the owner's machine.
	labelProcess = labelPrefix + "process"
	// labelLease is the TTL.
	labelLease = labelPrefix + "lease"
	// labelImage is the reference of the image.
	labelImage = labelPrefix + "image"
	// labelReady is the deadline for the start of a container.
	labelReady = labelPrefix + "start-by"

	kindSandbox = "sandbox"
	kindLoader  = "loader" // a container that is never started: it fills a volume or an image
	kindHelper  = "helper" // the helper's volume
	kindVolume  = "volume" // a volume of one container

	namePrefix   = "sandboxagent-"
	loaderSuffix = "-loader"
)

// owner returns user@machine.
func owner() string {
	name := strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	return name + "@" + machine()
}

// machine returns the host name.
func machine() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "unknown"
	}
	return name
}

// thisProcess identifies this process until the machine restarts.
func thisProcess() string {
	return fmt.Sprintf("%d:%s:%s", os.Getpid(), startTime(os.Getpid()), namespace())
}

// processEnded reports whether the process of a label has ended. It returns false if that is
// unknown: process IDs are valid only in their PID namespace.
func processEnded(label string) bool {
	parts := strings.Split(label, ":")
	space := namespace()
	if len(parts) < 3 || parts[1] == "" || space == "" || strings.Join(parts[2:], ":") != space {
		return false
	}
	pid, err := strconv.Atoi(parts[0])
	return err == nil && pid > 0 && startTime(pid) != parts[1]
}

// labels returns the labels of a container.
func (c Config) labels(kind string, now time.Time) map[string]string {
	all := make(map[string]string, len(c.Labels)+7)
	maps.Copy(all, c.Labels)
	all[labelSession] = c.Session
	all[labelImage] = c.Image
	all[labelKind] = kind
	all[labelOwner] = owner()
	all[labelProcess] = thisProcess()
	all[labelLease] = c.TTL.String()
	all[labelReady] = now.Add(c.StartTimeout).UTC().Format(time.RFC3339)
	return all
}
