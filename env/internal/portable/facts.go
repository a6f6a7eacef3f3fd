package portable

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxagent/sandboxagent/env"
)

// maxFacts bounds what a place says about itself.
const maxFacts = 64 << 10

// dirBody goes to the working directory and back, and prints its name.
const dirBody = `if cd -- "$sa_wd"; then pwd -P && cd /; elif [ -d "$sa_wd" ]; then (exit 2); else sa_else "$sa_wd" 4; fi`

// facts are what a place has.
type facts struct {
	has     map[string]bool
	missing []string
	values  map[string]string
	shells  []string
	dir     string
	umask   uint32
}

// prologue is what shells are told before their first operation.
func (f facts) prologue() string {
	bytewise := "1"
	if !f.has["grep of bytes"] || !f.has["grep"] {
		bytewise = "0"
	}
	return "sa_g=" + bytewise + "\n"
}

// learn starts the warden and learns from it what there is.
func (e *Environment) learn(ctx context.Context) error {
	prologue := "sa_g=0\n"
	if path.IsAbs(e.cfg.Dir) {
		prologue += "sa_wd=" + quote(e.cfg.Dir) + "\n"
	} else if e.cfg.Dir != "" {
		prologue += "sa_wd=${sa_wd%/}/" + quote(e.cfg.Dir) + "\n"
	}
	raw, err := e.cfg.Start(ctx)
	if err != nil {
		return cut(ctx, fmt.Errorf("start a shell: %w", err))
	}
	s, err := newShell(ctx, raw, "/nonexistent", prologue) // it runs no commands
	if err != nil {
		return e.lost(ctx, fmt.Errorf("start a shell: %w", err))
	}
	e.pool.all[s] = struct{}{}
	e.warden.s = s
	ask := func(body string) (string, error) {
		out := collect{max: maxFacts}
		code, text, err := s.run(ctx, operation{body: body, out: out.add})
		if err == nil && code != 0 {
			err = fmt.Errorf("%w: %s", errCode(code, text), strings.TrimSpace(text))
		}
		return string(out.data), err
	}
	list, err := ask("sa_probe; :")
	if err != nil {
		return e.lost(ctx, fmt.Errorf("learn what the place has: %w", err))
	}
	if e.facts, err = parseFacts(list); err != nil {
		return err
	}
	if e.facts.dir, err = ask(dirBody); err != nil {
		return fmt.Errorf("working directory %q: %w", e.cfg.Dir, err)
	}
	e.facts.dir = strings.TrimSuffix(e.facts.dir, "\n")
	if !path.IsAbs(e.facts.dir) || path.Clean(e.facts.dir) != e.facts.dir {
		return fmt.Errorf("%w: working directory %q", env.ErrProtocol, e.facts.dir)
	}
	if e.pool.base, err = ask("sa_home .sandboxagent-" + e.id); err != nil {
		return fmt.Errorf("no folder in which pipes can be made: %w", err)
	}
	if !path.IsAbs(e.pool.base) {
		return fmt.Errorf("%w: folder %q", env.ErrProtocol, e.pool.base)
	}
	if _, err := ask(e.facts.prologue() + ":"); err != nil {
		return err
	}
	e.info = e.facts.info(e.cfg.Backend)
	e.info.Guarantees = e.guarantees()
	return nil
}

// parseFacts parses what sa_probe prints, and checks that nothing is missing.
func parseFacts(list string) (facts, error) {
	f := facts{has: make(map[string]bool), values: make(map[string]string)}
	for line := range strings.Lines(list) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		switch key {
		case "missing":
			f.missing = append(f.missing, value)
		case "has":
			f.has[value] = true
		case "shell":
			f.shells = append(f.shells, value)
		default:
			f.values[key] = value
		}
	}
	if f.values["system"] != "Linux" {
		return f, fmt.Errorf("the system is %.40q, want Linux: %w", f.values["system"], errors.ErrUnsupported)
	}
	if len(f.missing) > 0 {
		return f, fmt.Errorf("the place lacks %s: %w", strings.Join(f.missing, ", "), errors.ErrUnsupported)
	}
	umask, err := strconv.ParseUint(f.values["umask"], 8, 12)
	if err != nil {
		return f, fmt.Errorf("%w: umask %.40q", env.ErrProtocol, f.values["umask"])
	}
	f.umask = uint32(umask)
	return f, nil
}

// info returns what Info reports.
func (f facts) info(backend string) env.Info {
	arch := f.values["machine"]
	if name, ok := map[string]string{
		"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64", "i386": "386", "i686": "386", "armv7l": "arm",
		"armv6l": "arm", "riscv64": "riscv64", "s390x": "s390x", "ppc64le": "ppc64le", "loongarch64": "loong64", "mips64": "mips64",
	}[arch]; ok {
		arch = name
	}
	info := env.Info{
		Backend: backend, OS: "linux", Arch: strings.ToLower(arch), WorkDir: f.dir,
		OSVersion: strings.Map(printable, strings.Trim(f.values["version"], `"'`)),
	}
	if len(f.shells) > 0 {
		info.Shell = []string{f.shells[0], "-c"}
	} else {
		info.NoShell = "neither bash nor sh is in /bin or /usr/bin"
	}
	return info
}

// printable drops what could harm a terminal.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
		return -1
	}
	return r
}

// needs returns an error that names the first of tools that is not there.
func (f facts) needs(tools ...string) error {
	for _, tool := range tools {
		if !f.has[tool] {
			return fmt.Errorf("the place has no %s: %w", tool, errors.ErrUnsupported)
		}
	}
	return nil
}

// checkVars reports variables that no system could hold.
func checkVars(vars []string) error {
	if i := slices.IndexFunc(vars, func(v string) bool {
		name, _, ok := strings.Cut(v, "=")
		return !ok || name == "" || strings.ContainsRune(v, 0)
	}); i >= 0 {
		name, _, _ := strings.Cut(vars[i], "=")
		return fmt.Errorf("variable %q: %w", name, fs.ErrInvalid)
	}
	return nil
}
