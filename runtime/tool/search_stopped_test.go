package tool

import (
	"context"
	"strings"
	"testing"

	"github.com/sandboxagent/sandboxagent/env/search"
)

// stopping is an environment whose searches report that they stopped at a limit.
type stopping struct {
	*memory
	at   search.GrepStop
	opts []search.GrepOptions
}

func (s *stopping) Grep(
	ctx context.Context, opts search.GrepOptions, fn func(search.GrepMatch) error,
) (search.GrepStats, error) {
	s.opts = append(s.opts, opts)
	stats, err := search.Grep(ctx, s.memory, opts, fn)
	stats.Stopped = s.at
	return stats, err
}

func (s *stopping) Glob(ctx context.Context, opts search.GlobOptions) ([]search.Entry, error) {
	return search.Glob(ctx, s.memory, opts)
}

func (s *stopping) Walk(
	ctx context.Context, root string, opts search.WalkOptions, fn func(search.Entry) error,
) error {
	return search.Walk(ctx, s.memory, root, opts, fn)
}

// Every variant of grep reports that a search stopped at a limit, with any results.
func TestGrepStopped(t *testing.T) {
	const (
		overTime = "[stopped after 30s with a part of the files not searched, since the pattern " +
			"requires no literal text: narrow the path, or add text to the pattern]\n"
		overBytes = "[stopped after 2 GiB with a part of the files not searched, since the pattern " +
			"requires no literal text: narrow the path, or add text to the pattern]\n"
	)
	forms := map[string]Tool{"core": Grep(), "Anthropic": AnthropicGrep(), "Gemini": GeminiGrep()}
	for name, tool := range forms {
		more := "raise max_results"
		if name == "Anthropic" {
			more = "go on with offset 1"
		}
		for at, remark := range map[search.GrepStop]string{
			search.GrepOverTime:  overTime,
			search.GrepOverBytes: overBytes, "": "",
		} {
			for what, tt := range map[string]struct {
				args args
				want string
			}{
				"matches": {args{"pattern": "[0-9]"}, "a:1:1\nb:1:2\n" + remark +
					"[1 binary files were not searched]\n"},
				"no matches": {args{"pattern": "[A-Z]"}, "[no matches in 2 files]\n" + remark +
					"[1 binary files were not searched]\n"},
				"files": {args{
					"pattern": "[0-9]", "path": "a", "output_mode": "files_with_matches",
				}, "a\n" + remark},
				"more than allowed": {
					args{"pattern": "[0-9]", "max_results": 1},
					"a:1:1\n[stopped after 1 results, more match: narrow the pattern or the path, or " + more +
						"]\n" + remark,
				},
			} {
				t.Run(strings.Join([]string{name, string(at), what}, "/"), func(t *testing.T) {
					s := &stopping{
						memory: newMemory(map[string]string{"a": "1\n", "b": "2\n", "c": "\x00"}), at: at,
					}
					o := registry(t, tool).Run(t.Context(), Scope{Env: s}, call(t, "grep", tt.args))
					checkText(t, o, "", tt.want)
					if len(s.opts) != 1 || s.opts[0].MaxTime != 0 || s.opts[0].MaxBytes != 0 {
						t.Errorf("the remark names the default limits, but the options are %+v", s.opts)
					}
				})
			}
		}
	}
}
