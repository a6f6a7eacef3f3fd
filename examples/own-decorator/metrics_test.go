package main

import (
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/envtest"
)

func TestWrap(t *testing.T) {
	envtest.CheckWrap(t, func(e env.Environment) env.Environment { return &metrics{inner: e} })
}
