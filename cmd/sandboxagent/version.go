package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

// version and commit are set by the linker; if empty, those in the build information count.
var version, commit string

func (p *program) versionCommand() *cli.Command {
	return &cli.Command{
		Usage: "show the version; --version is the same",
		UsageText: `
sandboxagent version
sandboxagent --version`,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("version takes no arguments")
			}
			v, rev := buildVersion()
			_, err := fmt.Fprintf(p.std.out, "sandboxagent %s\ncommit %s\n%s %s/%s\n", v, rev,
				runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

// buildVersion returns the version and the commit that the program was built from.
func buildVersion() (v, rev string) {
	v, rev = version, commit
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cmp.Or(v, "development"), cmp.Or(rev, "unknown")
	}
	if v == "" {
		v = info.Main.Version
	}
	if v == "" || v == "(devel)" {
		v = "development"
	}
	if rev != "" {
		return v, rev
	}
	rev = "unknown"
	modified := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			rev = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	if modified {
		rev += " with local changes"
	}
	return v, rev
}
