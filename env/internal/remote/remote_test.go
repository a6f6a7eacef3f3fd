package remote_test

import (
	"slices"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/internal/remote"
)

// inside says something of itself, and may be left.
type inside struct {
	remote.Inside
	left bool
}

func (*inside) Info() env.Info {
	return env.Info{Backend: "local", Shell: []string{"/bin/sh", "-c"}, Guarantees: []env.Guarantee{
		{Promise: env.KillTree, Strength: env.Enforced, By: "the inside"},
		{Promise: env.Isolation, Strength: env.Absent, By: "the inside"},
	}}
}

func (i *inside) Leave() { i.left = true }

func TestInfo(t *testing.T) {
	kill := env.Guarantee{Promise: env.KillTree, Strength: env.Enforced, By: "the inside"}
	isolated := env.Guarantee{Promise: env.Isolation, Strength: env.Enforced, By: "the place"}
	for name, tt := range map[string]struct {
		isolation env.Guarantee
		want      []env.Guarantee
	}{
		"said": {env.Guarantee{Strength: env.Enforced, By: "the place"}, []env.Guarantee{
			kill,
			isolated,
		}},
		"unsaid": {env.Guarantee{}, []env.Guarantee{kill}},
	} {
		t.Run(name, func(t *testing.T) {
			p := remote.New(&inside{}, "elsewhere", tt.isolation)
			info := p.Info()
			if info.Backend != "elsewhere" || !slices.Equal(info.Guarantees, tt.want) {
				t.Errorf("%+v", info)
			}
			info.Shell[0], info.Guarantees[0].By = "changed", "changed"
			if again := p.Info(); again.Shell[0] != "/bin/sh" || !slices.Equal(again.Guarantees, tt.want) {
				t.Errorf("a caller has changed it: %+v", again)
			}
		})
	}
}

func TestLeave(t *testing.T) {
	in := &inside{}
	p := remote.New(in, "elsewhere", env.Guarantee{})
	if p.Leave(); !in.left {
		t.Error("the inside was not left")
	}
}
