package client

import (
	"context"
	"errors"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// TestSearchCancelled cancels at the first result of a batch.
func TestSearchCancelled(t *testing.T) {
	wiretest.NoLeaks(t)
	e := &recorder{matches: make([]search.GrepMatch, 100)}
	c := connected(t, e, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	found := 0
	_, err := c.Grep(ctx, search.GrepOptions{}, func(search.GrepMatch) error {
		found++
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || found != 1 {
		t.Errorf("%d matches, error %v", found, err)
	}
}
