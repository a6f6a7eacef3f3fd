package docker

import (
	"maps"
	"time"

	"github.com/sandboxagent/sandboxagent/env/remote"
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
	// labelReady is when a container that has not started is garbage.
	labelReady = labelPrefix + "start-by"

	kindSandbox = "sandbox"
	kindLoader  = "loader" // a container that is never started: it fills a volume or an image
	kindHelper  = "helper" // the helper's volume
	kindVolume  = "volume" // a volume of one container

	namePrefix   = "sandboxagent-"
	loaderSuffix = "-loader"
)

// labels returns the labels of a container.
func (c Config) labels(kind string, now time.Time) map[string]string {
	all := make(map[string]string, len(c.Labels)+7)
	maps.Copy(all, c.Labels)
	all[labelSession] = c.Session
	all[labelImage] = c.Image
	all[labelKind] = kind
	all[labelOwner] = remote.Owner()
	all[labelProcess] = remote.ThisProcess()
	all[labelLease] = c.TTL.String()
	// By then its client has removed it.
	all[labelReady] = now.Add(c.StartTimeout + cleanupTimeout).UTC().Format(time.RFC3339)
	return all
}
