package main

import (
	"slices"
	"sync"

	"github.com/urfave/cli/v2"
)

// A flag of package cli makes its names by a regular expression whenever it is asked for them, which
// a start does thousands of times. namedFlag and namedList keep them.
type (
	namedFlag struct {
		documentedFlag
		names []string // nil until somebody asks
	}
	// namedList embeds a type, since package cli calls methods of lists that no interface can name.
	namedList struct {
		*cli.StringSliceFlag
		names []string
	}
)

func (f *namedFlag) Names() []string {
	if f.names == nil {
		f.names = f.documentedFlag.Names()
	}
	return f.names
}

func (f *namedList) Names() []string {
	if f.names == nil {
		f.names = f.StringSliceFlag.Names()
	}
	return f.names
}

// withNames returns flags that keep their names.
func withNames(flags []cli.Flag) []cli.Flag {
	named := make([]cli.Flag, len(flags))
	for i, f := range flags {
		if list, ok := f.(*cli.StringSliceFlag); ok {
			named[i] = &namedList{StringSliceFlag: list}
		} else {
			named[i] = &namedFlag{documentedFlag: f.(documentedFlag)}
		}
	}
	return named
}

// plainFlag returns the flag of package cli, which has the type of its values.
func plainFlag(f cli.Flag) cli.Flag {
	switch f := f.(type) {
	case *namedFlag:
		return f.documentedFlag
	case *namedList:
		return f.StringSliceFlag
	}
	return f
}

// isList reports whether a flag has several values.
func isList(f cli.Flag) bool {
	_, ok := plainFlag(f).(*cli.StringSliceFlag)
	return ok
}

// flagOwners has, for each name of a flag of a backend, the names of all backends that obey it.
var flagOwners = sync.OnceValue(func() map[string][]string {
	owners := make(map[string][]string)
	for _, b := range backends(nil) {
		for _, f := range b.flags() {
			for _, name := range f.Names() {
				if !slices.Contains(owners[name], b.name()) {
					owners[name] = append(owners[name], b.name())
				}
			}
		}
	}
	return owners
})
