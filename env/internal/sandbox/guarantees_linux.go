package sandbox

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

// Guarantees returns what this plan guarantees once Enter has succeeded.
func (p *Plan) Guarantees() []env.Guarantee {
	version, _ := landlockABI() // 0 where there is none, which Enter lets pass for bubblewrap only
	if p.By == Bubblewrap {
		return p.byBubblewrap(version)
	}
	return p.byLandlock(version)
}

func (p *Plan) byBubblewrap(landlock int) []env.Guarantee {
	all := []env.Guarantee{
		{
			Promise:  env.Isolation,
			Strength: env.Enforced,
			By:       "bubblewrap: namespaces of user, mounts, processes and IPC, and a filter of system calls; what each of the other promises leaves open stays open",
		},
		{
			Promise:  env.ConfinedWrites,
			Strength: env.Enforced,
			By:       "bubblewrap: all else is mounted read-only; and Landlock",
		},
		{
			Promise:  env.HiddenSecrets,
			Strength: env.Enforced,
			By:       "bubblewrap: empty mounts over the places in a list, and Landlock for what somebody outside makes or replaces there; secrets elsewhere are seen",
		},
		{
			Promise:  env.NoNetwork,
			Strength: env.Enforced,
			By:       "bubblewrap: a network namespace with a loopback interface only",
		},
		{
			Promise:  env.HiddenSockets,
			Strength: env.BestEffort,
			By:       "bubblewrap: empty mounts over those that are known at the start; one made or renamed later outside /run and /tmp, and one in a folder that may be changed, is reached",
		},
		{Promise: env.HiddenProcesses, Strength: env.Enforced, By: "bubblewrap: a pid namespace"},
		{
			Promise:  env.NoNewRights,
			Strength: env.Enforced,
			By:       "bubblewrap: no_new_privs and no capabilities; a filter of system calls, by which no set-id programs are made, either",
		},
		{
			Promise:  env.KeptHooks,
			Strength: env.BestEffort,
			By:       "bubblewrap: hooks and settings of the repository are mounted read-only, until somebody outside replaces them; those of other repositories in the folder, also ones that are made in it, are not",
		},
	}
	if p.Network {
		p.set(all, env.NoNetwork, env.Absent, "the network of this machine was asked for")
		if landlock < scopeABI {
			p.set(
				all,
				env.HiddenSockets,
				env.BestEffort,
				"bubblewrap: empty mounts over all that there were at the start; abstract ones are reached by the network that was asked for",
			)
		}
	}
	if len(p.Unprotected) > 0 {
		p.set(
			all,
			env.KeptHooks,
			env.Absent,
			fmt.Sprintf(
				"%s is a link, or leads over one, and so cannot be kept as it is",
				p.Unprotected[0],
			),
		)
	}
	switch {
	case landlock == 0:
		p.set(
			all,
			env.ConfinedWrites,
			env.Enforced,
			"bubblewrap: all else is mounted read-only, but what somebody mounts later",
		)
		p.set(
			all,
			env.HiddenSecrets,
			env.Enforced,
			"bubblewrap: empty mounts over the places in a list; secrets elsewhere are seen, and, for want of Landlock, what somebody outside makes or replaces there",
		)
	case landlock >= socketABI:
		p.set(all, env.HiddenSockets, env.Enforced, "Landlock, and bubblewrap")
	}
	return all
}

func (p *Plan) byLandlock(version int) []env.Guarantee {
	signals := "other processes are seen, and can be sent signals"
	if version >= scopeABI {
		signals = "other processes are seen; Landlock keeps signals from them"
	}
	all := []env.Guarantee{
		{
			Promise:  env.Isolation,
			Strength: env.BestEffort,
			By:       fmt.Sprintf("Landlock, version %d, and a filter of system calls", version),
		},
		{
			Promise:  env.ConfinedWrites,
			Strength: env.Enforced,
			By:       "Landlock; modes, owners and times of files elsewhere can be changed as far as the user may",
		},
		{
			Promise:  env.HiddenSecrets,
			Strength: env.Enforced,
			By:       "Landlock: no reading in the places in a list; names are seen, and secrets elsewhere",
		},
		{
			Promise:  env.NoNetwork,
			Strength: env.Enforced,
			By:       "a filter of system calls: no sockets but connected pairs",
		},
		{
			Promise:  env.HiddenSockets,
			Strength: env.Enforced,
			By:       "a filter of system calls: no sockets but connected pairs",
		},
		{Promise: env.HiddenProcesses, Strength: env.Absent, By: signals},
		{
			Promise:  env.NoNewRights,
			Strength: env.Enforced,
			By:       "no_new_privs and no capabilities; a filter of system calls, by which no set-id programs are made, either",
		},
		{
			Promise:  env.KeptHooks,
			Strength: env.Absent,
			By:       "Landlock cannot keep files in a folder that may be changed",
		},
	}
	if p.Network {
		p.set(all, env.NoNetwork, env.Absent, "the network of this machine was asked for")
		p.set(
			all,
			env.HiddenSockets,
			env.Enforced,
			"a filter of system calls: no unix sockets but connected pairs",
		)
		if version >= socketABI {
			p.set(all, env.HiddenSockets, env.Enforced, "Landlock")
		}
	}
	if len(p.Exposed) > 0 {
		p.set(
			all,
			env.HiddenSecrets,
			env.BestEffort,
			fmt.Sprintf(
				"Landlock: no reading in the places in a list, but of %s, in a folder that may be changed; names are seen, and secrets elsewhere",
				strings.Join(p.Exposed, " and "),
			),
		)
	}
	return all
}

func (p *Plan) set(all []env.Guarantee, promise env.Promise, strength env.Strength, by string) {
	i := slices.IndexFunc(all, func(g env.Guarantee) bool { return g.Promise == promise })
	all[i] = env.Guarantee{Promise: promise, Strength: strength, By: by}
}
