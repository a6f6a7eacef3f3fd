package vars_test

import (
	"fmt"

	"github.com/sandboxagent/sandboxagent/env/vars"
)

// What the default filter keeps of a set of variables.
func ExampleFilter() {
	assignments := []string{
		"PATH=/usr/bin",
		"EDITOR=vi",
		"NPM_TOKEN=abc",
		"DATABASE_URL=postgres://app:hunter2@db/app",
	}
	fmt.Println((&vars.Filter{}).Apply(assignments))
	fmt.Println((&vars.Filter{Mode: vars.Core, Pass: []string{"NPM_TOKEN"}}).Apply(assignments))
	// Output:
	// [PATH=/usr/bin EDITOR=vi]
	// [PATH=/usr/bin NPM_TOKEN=abc]
}
