package envtest

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
)

// badMultiReader is an environment whose optional interface changes what it gives.
type badMultiReader struct {
	altered
	change func(ctx context.Context, names []string, limit int64, contents []env.FileContent,
		err error) ([]env.FileContent, error)
}

func (b *badMultiReader) ReadFiles(
	ctx context.Context, names []string, limit int64,
) ([]env.FileContent, error) {
	contents, err := env.ReadFiles(ctx, plain{b.Environment}, names, limit)
	return b.change(ctx, names, limit, contents, err)
}

// readFilesBut returns a wrap that changes the contents one by one.
func readFilesBut(
	change func(f *env.FileContent),
) func(*testing.T, env.Environment) env.Environment {
	return changedReadFiles(func(_ context.Context, _ []string, _ int64, contents []env.FileContent,
		err error,
	) ([]env.FileContent, error) {
		for i := range contents {
			change(&contents[i])
		}
		return contents, err
	})
}

func changedReadFiles(
	change func(context.Context, []string, int64, []env.FileContent, error) ([]env.FileContent, error),
) func(*testing.T, env.Environment) env.Environment {
	return func(_ *testing.T, good env.Environment) env.Environment {
		return &badMultiReader{altered{Environment: good}, change}
	}
}

func brokenReadFiles() []breakage {
	return []breakage{
		{"ReadFiles leaves out what it cannot read", changedReadFiles(
			func(_ context.Context, _ []string, _ int64, contents []env.FileContent,
				err error,
			) ([]env.FileContent, error) {
				var good []env.FileContent
				for _, f := range contents {
					if f.Err == nil {
						good = append(good, f)
					}
				}
				return good, err
			}), []string{"readfiles/unreadable"}},
		{"ReadFiles fails as a whole", changedReadFiles(
			func(_ context.Context, _ []string, _ int64, contents []env.FileContent,
				err error,
			) ([]env.FileContent, error) {
				for _, f := range contents {
					if f.Err != nil {
						return nil, f.Err
					}
				}
				return contents, err
			}), []string{"readfiles/unreadable"}},
		{"ReadFiles reads a name once", changedReadFiles(
			func(_ context.Context, _ []string, _ int64, contents []env.FileContent,
				err error,
			) ([]env.FileContent, error) {
				seen := map[string]bool{}
				for i, f := range contents {
					if seen[f.Name] {
						contents[i].Data = nil
					}
					seen[f.Name] = true
				}
				return contents, err
			}), []string{"readfiles/200_names"}},
		{"ReadFiles has no order", changedReadFiles(
			func(_ context.Context, _ []string, _ int64, contents []env.FileContent,
				err error,
			) ([]env.FileContent, error) {
				if len(contents) > 1 {
					contents[0], contents[1] = contents[1], contents[0]
				}
				return contents, err
			}), []string{"readfiles/contents"}},
		{"ReadFiles of nothing is an error", changedReadFiles(
			func(_ context.Context, names []string, _ int64, contents []env.FileContent,
				err error,
			) ([]env.FileContent, error) {
				if len(names) == 0 {
					return nil, os.ErrInvalid
				}
				return contents, err
			}), []string{"readfiles/none"}},
		{"ReadFiles mends names", readFilesBut(func(f *env.FileContent) { f.Name = strings.ToValidUTF8(f.Name, "\ufffd") }), []string{"readfiles/names"}},
		{"ReadFiles has no limit", func(_ *testing.T, good env.Environment) env.Environment {
			return &badMultiReader{altered{Environment: good}, func(
				ctx context.Context, _ []string, _ int64, contents []env.FileContent, err error,
			) ([]env.FileContent, error) {
				for i, f := range contents {
					if errors.Is(f.Err, env.ErrTooLarge) {
						contents[i].Data, contents[i].Err = env.ReadFile(ctx, good, f.Name, 0)
					}
				}
				return contents, err
			}}
		}, []string{"readfiles/limit"}},
		{"ReadFiles tells errors as texts", readFilesBut(func(f *env.FileContent) {
			if f.Err != nil {
				f.Err = os.ErrExist
			}
		}), []string{"readfiles/special_files", "readfiles/limit_of_all"}},
		{"ReadFiles goes on after the end", changedReadFiles(
			func(ctx context.Context, names []string, _ int64, contents []env.FileContent,
				err error,
			) ([]env.FileContent, error) {
				if err != nil {
					contents, err = make([]env.FileContent, len(names)), nil
				}
				return contents, err
			}), []string{"readfiles/canceled", "readfiles/closed"}},
	}
}
