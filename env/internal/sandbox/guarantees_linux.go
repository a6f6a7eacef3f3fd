package sandbox

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

// Guarantees returns the guarantees of this plan, which hold once Enter has succeeded.
func (p *Plan) Guarantees() []env.Guarantee {
	version, _ := landlockABI() // 0 without Landlock, which Enter allows for bubblewrap only
	if p.By == Bubblewrap {
		return p.byBubblewrap(version)
	}
	return p.byLandlock(version)
}

func (p *Plan) byBubblewrap(landlock int) []env.Guarantee {
	all := []env.Guarantee{
		{
			Name:     env.Isolation,
			Strength: env.Enforced,
			By: "bubblewrap: namespaces of user, mounts, processes and IPC, and a filter of " +
				"system calls; limited by the other guarantees",
		},
		{
			Name:     env.ConfinedWrites,
			Strength: env.Enforced,
			By:       "bubblewrap: all else is mounted read-only; and Landlock",
		},
		{
			Name:     env.HiddenSecrets,
			Strength: env.Enforced,
			By: "bubblewrap: empty mounts over home directories, except what builds need, and over " +
				"listed paths, and Landlock for files that are created or replaced there later; " +
				"secrets elsewhere are readable",
		},
		{
			Name:     env.NoNetwork,
			Strength: env.Enforced,
			By:       "bubblewrap: a network namespace with a loopback interface only",
		},
		{
			Name:     env.HiddenSockets,
			Strength: env.BestEffort,
			By: "bubblewrap: empty mounts over those that exist at the start; one made or " +
				"renamed later outside the home, /run and /tmp, and one in a writable directory, is " +
				"reachable",
		},
		{Name: env.HiddenProcesses, Strength: env.Enforced, By: "bubblewrap: a pid namespace"},
		{
			Name:     env.NoNewRights,
			Strength: env.Enforced,
			By: "bubblewrap: no_new_privs and no capabilities; a filter of system calls " +
				"refuses to create set-id programs",
		},
		{
			Name:     env.KeptHooks,
			Strength: env.BestEffort,
			By: "bubblewrap: hooks and settings of the repository are mounted read-only, until " +
				"a process outside replaces them; those of other repositories below are not",
		},
	}
	if p.DirReadOnly {
		all = append(all, env.Guarantee{
			Name: env.ReadOnlyFiles, Strength: env.Enforced, By: "bubblewrap: a read-only mount",
		})
	}
	p.weaken(all, landlock)
	return all
}

// weaken lowers the guarantees that the plan, or a kernel without a recent Landlock, leaves open.
func (p *Plan) weaken(all []env.Guarantee, landlock int) {
	if p.Network {
		p.set(all, env.NoNetwork, env.Absent, "the network of this machine was requested")
		if landlock < scopeABI {
			p.set(
				all,
				env.HiddenSockets,
				env.BestEffort,
				"bubblewrap: empty mounts over those that existed at the start; abstract ones "+
					"are reachable by the requested network",
			)
		}
	}
	inGit := func(name string) bool {
		return slices.ContainsFunc(p.GitDirs, func(dir string) bool { return Within(name, dir) })
	}
	if len(p.GitDirs) > 0 && len(p.locks) == 0 && !slices.ContainsFunc(p.Reopened, inGit) {
		p.set(all, env.KeptHooks, env.Enforced, "bubblewrap: the repository and those of its "+
			"submodules are mounted read-only; those that a command makes are not")
	}
	if len(p.Unprotected) > 0 {
		p.set(all, env.KeptHooks, env.Absent,
			fmt.Sprintf("%s cannot be protected: it is, or leads over, a symlink, or is one of more than "+
				"%d repositories", p.Unprotected[0], maxRepositories))
	}
	switch {
	case landlock == 0:
		p.set(all, env.ConfinedWrites, env.Enforced,
			"bubblewrap: all else is mounted read-only, but later mounts")
		p.set(
			all,
			env.HiddenSecrets,
			env.Enforced,
			"bubblewrap: empty mounts over home directories, except what builds need, and over "+
				"listed paths; secrets elsewhere are readable, and, without Landlock, files that "+
				"are created or replaced at listed paths later",
		)
	case landlock >= socketABI:
		p.set(all, env.HiddenSockets, env.Enforced, "Landlock, and bubblewrap")
	}
	if p.NoUnixSockets {
		p.set(all, env.HiddenSockets, env.Enforced,
			"a filter of system calls: no unix sockets but connected pairs")
	}
	p.openHomes(all)
}

// openHomes names the home directories that are not hidden.
func (p *Plan) openHomes(all []env.Guarantee) {
	if len(p.OpenHomes) == 0 {
		return
	}
	i := slices.IndexFunc(all, func(g env.Guarantee) bool { return g.Name == env.HiddenSecrets })
	all[i].By += fmt.Sprintf("; of the home directory %s, which is one of the system, only secrets "+
		"are hidden", strings.Join(p.OpenHomes, " and "))
}

func (p *Plan) byLandlock(version int) []env.Guarantee {
	signals := "other processes are seen, and can be sent signals"
	if version >= scopeABI {
		signals = "other processes are seen; Landlock keeps signals from them"
	}
	all := []env.Guarantee{
		{
			Name:     env.Isolation,
			Strength: env.BestEffort,
			By:       fmt.Sprintf("Landlock, version %d, and a filter of system calls", version),
		},
		{
			Name:     env.ConfinedWrites,
			Strength: env.Enforced,
			By:       "Landlock; modes, owners and times of the user's files elsewhere can be changed",
		},
		{
			Name:     env.HiddenSecrets,
			Strength: env.Enforced,
			By: "Landlock: home directories, except what builds need, and listed paths cannot be " +
				"read; names, and secrets elsewhere, can",
		},
		{
			Name:     env.NoNetwork,
			Strength: env.Enforced,
			By:       "a filter of system calls: no sockets but connected pairs",
		},
		{
			Name:     env.HiddenSockets,
			Strength: env.Enforced,
			By:       "a filter of system calls: no sockets but connected pairs",
		},
		{Name: env.HiddenProcesses, Strength: env.Absent, By: signals},
		{
			Name:     env.NoNewRights,
			Strength: env.Enforced,
			By: "no_new_privs and no capabilities; a filter of system calls refuses to create " +
				"set-id programs",
		},
		{
			Name:     env.KeptHooks,
			Strength: env.Absent,
			By:       "Landlock cannot protect files in a writable directory",
		},
	}
	if p.Network {
		p.set(all, env.NoNetwork, env.Absent, "the network of this machine was requested")
		p.set(all, env.HiddenSockets, env.Enforced,
			"a filter of system calls: no unix sockets but connected pairs")
		if !p.RefusesUnixSockets() {
			p.set(all, env.HiddenSockets, env.Enforced, "Landlock")
		}
	}
	if len(p.Exposed) > 0 {
		p.set(
			all,
			env.HiddenSecrets,
			env.BestEffort,
			fmt.Sprintf(
				"Landlock: home directories, except what builds need, and listed paths cannot be "+
					"read, except %s in a writable directory; names, and secrets elsewhere, can",
				strings.Join(p.Exposed, " and "),
			),
		)
	}
	p.openHomes(all)
	return all
}

func (p *Plan) set(all []env.Guarantee, name env.GuaranteeName, strength env.Strength, by string) {
	i := slices.IndexFunc(all, func(g env.Guarantee) bool { return g.Name == name })
	all[i] = env.Guarantee{Name: name, Strength: strength, By: by}
}
