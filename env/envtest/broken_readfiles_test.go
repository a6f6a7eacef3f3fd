package envtest

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env"
)

// contents are the result of ReadFiles.
type contents = []env.FileContent

// badMultiReader is an environment that changes the results of ReadFiles.
type badMultiReader struct {
	altered
	change func(files contents, err error) (contents, error)
}

func (b *badMultiReader) ReadFiles(
	ctx context.Context, names []string, limit int64,
) ([]env.FileContent, error) {
	return b.change(env.ReadFiles(ctx, plain{b.Environment}, names, limit))
}

// readFilesOf returns a breaker that changes the results of ReadFiles.
func readFilesOf(change func(files contents, err error) (contents, error)) breaker {
	return func(_ *testing.T, good env.Environment) env.Environment {
		return &badMultiReader{newAltered(good), change}
	}
}

// readFilesBut returns a breaker that changes the contents one by one.
func readFilesBut(change func(f *env.FileContent)) breaker {
	return readFilesOf(func(files contents, err error) (contents, error) {
		for i := range files {
			change(&files[i])
		}
		return files, err
	})
}

func brokenReadFiles() []breakage {
	return []breakage{
		{"ReadFiles omits errors", readFilesOf(func(files contents, err error) (contents, error) {
			var good contents
			for _, f := range files {
				if f.Err == nil {
					good = append(good, f)
				}
			}
			return good, err
		}), []string{"readfiles/unreadable"}},
		{"ReadFiles fails as a whole", readFilesOf(func(files contents, err error) (contents, error) {
			for _, f := range files {
				if f.Err != nil {
					return nil, f.Err
				}
			}
			return files, err
		}), []string{"readfiles/unreadable"}},
		{"ReadFiles reads a name once", readFilesOf(func(files contents, err error) (contents, error) {
			seen := map[string]bool{}
			for i, f := range files {
				if seen[f.Name] {
					files[i].Data = nil
				}
				seen[f.Name] = true
			}
			return files, err
		}), []string{"readfiles/200_names"}},
		{"ReadFiles has no order", readFilesOf(func(files contents, err error) (contents, error) {
			if len(files) > 1 {
				files[0], files[1] = files[1], files[0]
			}
			return files, err
		}), []string{"readfiles/contents"}},
		{"ReadFiles needs a name", readFilesOf(func(files contents, err error) (contents, error) {
			if len(files) == 0 && err == nil {
				return nil, os.ErrInvalid
			}
			return files, err
		}), []string{"readfiles/none"}},
		{"ReadFiles mends names", readFilesBut(func(f *env.FileContent) {
			f.Name = strings.ToValidUTF8(f.Name, "\ufffd")
		}), []string{"readfiles/names"}},
		{"ReadFiles has no limit", func(t *testing.T, good env.Environment) env.Environment {
			change := func(files contents, err error) (contents, error) {
				for i, f := range files {
					if errors.Is(f.Err, env.ErrTooLarge) {
						files[i].Data, files[i].Err = env.ReadFile(t.Context(), good, f.Name, 0)
					}
				}
				return files, err
			}
			return readFilesOf(change)(t, good)
		}, []string{"readfiles/limit"}},
		{"ReadFiles changes errors", readFilesBut(func(f *env.FileContent) {
			if f.Err != nil {
				f.Err = os.ErrExist
			}
		}), []string{"readfiles/special_files", "readfiles/limit_of_all"}},
		{"ReadFiles never fails", readFilesOf(func(files contents, err error) (contents, error) {
			if err != nil {
				files, err = make(contents, 2), nil
			}
			return files, err
		}), []string{"readfiles/canceled", "readfiles/closed"}},
	}
}
