package client

import (
	"context"
	"io/fs"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env/internal/wire/wiretest"
	"github.com/sandboxagent/sandboxagent/env/search"
)

// recorder is an environment with set results that records the options of searches.
type recorder struct {
	wiretest.Env
	grep    search.GrepOptions
	matches []search.GrepMatch
	stats   search.GrepStats
	glob    search.GlobOptions
	walk    search.WalkOptions
	entries []search.Entry
}

func (a *recorder) Grep(
	_ context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	a.grep = opts
	for _, m := range a.matches {
		if err := fn(m); err != nil {
			return a.stats, err
		}
	}
	return a.stats, nil
}

func (a *recorder) Glob(_ context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	a.glob = opts
	return nil, nil
}

func (a *recorder) Walk(
	_ context.Context, _ string, opts search.WalkOptions, fn func(search.Entry) error,
) error {
	a.walk = opts
	for _, e := range a.entries {
		if err := fn(e); err != nil {
			return err
		}
	}
	return nil
}

// each calls f with one T for each field, in which that field alone differs from zero, and with one
// where all do. Fields that a later version adds are among them.
func each[T any](t *testing.T, f func(t *testing.T, v T)) {
	t.Helper()
	var all T
	for i := range reflect.TypeFor[T]().NumField() {
		var one T
		field := reflect.TypeFor[T]().Field(i)
		set(t, reflect.ValueOf(&one).Elem().Field(i), i, -1)
		set(t, reflect.ValueOf(&all).Elem().Field(i), i, 1)
		t.Run(field.Name, func(t *testing.T) { f(t, one) })
	}
	t.Run("all", func(t *testing.T) { f(t, all) })
}

// set makes the field i differ from zero, and from others. A number has the sign of sign.
func set(t *testing.T, v reflect.Value, i, sign int) {
	t.Helper()
	switch {
	case v.Type() == reflect.TypeFor[string](): // of any bytes, other than a mode
		v.SetString("text \xff" + strings.Repeat("x", i))
	case v.Kind() == reflect.String:
		v.SetString("text" + strings.Repeat("x", i))
	case v.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanInt():
		v.SetInt(int64(sign * (100 + i)))
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String:
		v.Set(reflect.ValueOf([]string{"go", "c"}))
	default:
		t.Fatalf("no value of %v is known", v.Type())
	}
}

// TestSearchOptions shows that all options reach the server, and all results the client.
func TestSearchOptions(t *testing.T) {
	wiretest.NoLeaks(t)
	e := &recorder{}
	c := connected(t, e, nil)
	t.Run("GrepOptions", func(t *testing.T) {
		each(t, func(t *testing.T, opts search.GrepOptions) {
			if _, err := c.Grep(t.Context(), opts, nil); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(opts, e.grep); diff != "" {
				t.Errorf("(-sent +received)\n%s", diff)
			}
		})
	})
	t.Run("GlobOptions", func(t *testing.T) {
		each(t, func(t *testing.T, opts search.GlobOptions) {
			if _, err := c.Glob(t.Context(), opts); err != nil || e.glob != opts {
				t.Errorf("sent %+v, received %+v, error %v", opts, e.glob, err)
			}
		})
	})
	t.Run("WalkOptions", func(t *testing.T) {
		each(t, func(t *testing.T, opts search.WalkOptions) {
			if err := c.Walk(t.Context(), ".", opts, nil); err != nil || e.walk != opts {
				t.Errorf("sent %+v, received %+v, error %v", opts, e.walk, err)
			}
		})
	})
	t.Run("Entry", func(t *testing.T) {
		e.entries = []search.Entry{{
			Name: "a\xff", Mode: fs.ModeSymlink | 0o751, Size: 5, ModTime: time.Unix(1, 2),
			Stamp: math.MaxUint64,
		}}
		var got []search.Entry
		err := c.Walk(t.Context(), ".", search.WalkOptions{}, func(e search.Entry) error {
			got = append(got, e)
			return nil
		})
		if diff := cmp.Diff(e.entries, got); diff != "" || err != nil {
			t.Errorf("error %v (-sent +received)\n%s", err, diff)
		}
	})
	t.Run("GrepStats", func(t *testing.T) {
		each(t, func(t *testing.T, stats search.GrepStats) {
			e.stats = stats
			if got, err := c.Grep(t.Context(), search.GrepOptions{}, nil); err != nil || got != stats {
				t.Errorf("sent %+v, received %+v, error %v", stats, got, err)
			}
		})
	})
	t.Run("GrepMatch", func(t *testing.T) {
		each(t, func(t *testing.T, m search.GrepMatch) {
			e.matches = []search.GrepMatch{m}
			var got []search.GrepMatch
			_, err := c.Grep(t.Context(), search.GrepOptions{}, func(m search.GrepMatch) error {
				got = append(got, m)
				return nil
			})
			if diff := cmp.Diff(e.matches, got); diff != "" || err != nil {
				t.Errorf("error %v (-sent +received)\n%s", err, diff)
			}
		})
	})
}
