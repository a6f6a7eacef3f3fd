package k8s

import (
	"errors"
	"testing"
)

func TestExceeds(t *testing.T) {
	const quota = `pods "x" is forbidden: exceeded quota: q, `
	for text, want := range map[string]bool{
		quota + "requested: pods=1, used: pods=2, limited: pods=2":                             false,
		quota + "requested: cpu=2, used: cpu=0, limited: cpu=1500m":                            true,
		quota + "requested: cpu=1,memory=2Gi, used: cpu=1,memory=0, limited: cpu=2,memory=1Gi": true,
		quota + "requested: cpu=1,memory=1Gi, used: cpu=2,memory=0, limited: cpu=2,memory=1Gi": false,
		quota + "something else": false,
		"":                       false,
	} {
		if got := exceeds(errors.New(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}
