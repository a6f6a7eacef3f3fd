package wrap_test

import (
	"bytes"
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/envtest"
	"github.com/sandboxagent/sandboxagent/env/search"
	"github.com/sandboxagent/sandboxagent/env/vars"
	"github.com/sandboxagent/sandboxagent/env/wrap"
)

// optional are the interfaces that an environment may implement to do something faster.
var optional = []reflect.Type{
	reflect.TypeFor[search.Searcher](),
	reflect.TypeFor[env.MultiReader](),
}

// roles are the interfaces of the contract itself.
var roles = []reflect.Type{
	reflect.TypeFor[env.Environment](),
	reflect.TypeFor[env.Runner](),
	reflect.TypeFor[env.FileReader](),
	reflect.TypeFor[env.FileWriter](),
	reflect.TypeFor[env.Copier](),
}

func decorators() map[string]func(env.Environment) env.Environment {
	return map[string]func(env.Environment) env.Environment{
		"ReadOnly":   func(e env.Environment) env.Environment { return wrap.ReadOnly(e, nil) },
		"Logging":    func(e env.Environment) env.Environment { return wrap.Logging(e, nil, nil) },
		"FilterVars": func(e env.Environment) env.Environment { return wrap.FilterVars(e, nil) },
	}
}

func TestDecoratorsImplementOptionalInterfaces(t *testing.T) {
	t.Parallel()
	for name, decorate := range decorators() {
		typ := reflect.TypeOf(decorate(newScriptedEnv(t)))
		for _, iface := range slices.Concat(roles, optional) {
			if !typ.Implements(iface) {
				t.Errorf("%s does not implement %v", name, iface)
			}
		}
		methods := map[string]bool{}
		for _, iface := range slices.Concat(roles, optional) {
			for m := range iface.Methods() {
				methods[m.Name] = true
			}
		}
		for m := range typ.Methods() {
			if !methods[m.Name] {
				t.Errorf("%s has the method %s, which is in no interface of these packages", name, m.Name)
			}
		}
		for f := range typ.Elem().Fields() {
			if f.Anonymous || f.IsExported() {
				t.Errorf("%s exports its field %s", name, f.Name)
			}
		}
	}
}

// TestOptionalInterfacesAreListed proves that the lists above have all interfaces that packages env
// and search declare.
func TestOptionalInterfacesAreListed(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{}
	for _, iface := range slices.Concat(roles, optional) {
		listed[iface.Name()] = true
	}
	var files []string
	for _, dir := range []string{"..", "../search"} {
		names, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, names...)
	}
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !spec.Name.IsExported() {
				return true
			}
			if _, ok := spec.Type.(*ast.InterfaceType); ok {
				if found++; !listed[spec.Name.Name] {
					t.Errorf("%s declares the interface %s: list it here, and have each decorator implement it "+
						"if it is optional", file, spec.Name.Name)
				}
			}
			return true
		})
	}
	if found != len(listed) {
		t.Errorf("the packages declare %d interfaces, %d are listed", found, len(listed))
	}
}

func TestObservingDecoratorsChangeNothing(t *testing.T) {
	t.Parallel()
	for name, decorate := range map[string]func(env.Environment) env.Environment{
		"Logging": func(e env.Environment) env.Environment {
			return wrap.Logging(e, slog.New(slog.NewJSONHandler(io.Discard, nil)), nil)
		},
		"FilterVars with all": func(e env.Environment) env.Environment {
			return wrap.FilterVars(e, &vars.Filter{Mode: vars.All})
		},
		"Apply": func(e env.Environment) env.Environment {
			return wrap.Apply(e, wrap.Options{
				Logger: slog.New(slog.NewJSONHandler(io.Discard, nil)),
				Vars:   &vars.Filter{Mode: vars.All},
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			envtest.CheckWrap(t, decorate)
		})
	}
}

func TestChain(t *testing.T) {
	t.Parallel()
	var order []string
	named := func(name string) func(env.Environment) env.Environment {
		return func(e env.Environment) env.Environment {
			return wrap.ReadOnly(e, func(env.Command) error {
				order = append(order, name)
				return nil
			})
		}
	}
	inner := newScriptedEnv(t)
	if got := wrap.Chain(inner); got != env.Environment(inner) {
		t.Errorf("Chain without decorators gives %v, want the environment itself", got)
	}
	if _, err := wrap.Chain(inner, named("outer"), nil, named("middle"),
		named("inner")).Exec(t.Context(), env.Command{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"outer", "middle", "inner"}, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// TestApplyOrder proves the order by what each decorator gets from the others.
func TestApplyOrder(t *testing.T) {
	t.Parallel()
	inner := newScriptedEnv(t)
	var got []string
	inner.run = func(_ context.Context, cmd env.Command) (env.Result, error) {
		got = cmd.Vars
		return env.Result{}, nil
	}
	var checked []string
	log := &bytes.Buffer{}
	e := wrap.Apply(inner, wrap.Options{
		Logger:   slog.New(slog.NewJSONHandler(log, nil)),
		ReadOnly: true,
		Check: func(cmd env.Command) error {
			checked = cmd.Vars
			if cmd.Argv[0] != "ls" {
				return errors.New("not ls")
			}
			return nil
		},
	})
	vars := []string{"A=b", "X_TOKEN=x"}

	if _, err := e.Exec(t.Context(), env.Command{Argv: []string{"rm"}, Vars: vars}); !errors.Is(err,
		env.ErrReadOnly) {
		t.Errorf("Exec of rm gives %v, want %v", err, env.ErrReadOnly)
	}
	if inner.ran > 0 {
		t.Error("the rejected command reaches the environment")
	}
	if _, err := e.Exec(t.Context(), env.Command{Argv: []string{"ls"}, Vars: vars}); err != nil {
		t.Errorf("Exec of ls gives %v", err)
	}
	if diff := cmp.Diff(vars, checked); diff != "" {
		t.Errorf("Check gets filtered variables, so FilterVars is outside of ReadOnly (-want "+
			"+got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"A=b"}, got); diff != "" {
		t.Errorf("the environment gets (-want +got):\n%s", diff)
	}
	want := []record{
		{"op": "exec", "argv": []any{"rm"}, "vars": []any{"A", "X_TOKEN"}, "err": "start rm: " +
			env.ErrReadOnly.Error() + ": not ls"},
		{"op": "exec", "argv": []any{"ls"}, "vars": []any{"A", "X_TOKEN"}, "exit_code": 0.0},
	}
	if diff := cmp.Diff(want, records(t, log)); diff != "" {
		t.Errorf("the log, which has rejections and all variables if it is outermost (-want +got):\n%s",
			diff)
	}
}

func TestApplyDefaults(t *testing.T) {
	t.Parallel()
	inner := newScriptedEnv(t)
	var got []string
	inner.run = func(_ context.Context, cmd env.Command) (env.Result, error) {
		got = cmd.Vars
		return env.Result{}, nil
	}
	refuse := func(env.Command) error { return errors.New("refused") }
	e := wrap.Apply(inner, wrap.Options{Check: refuse})
	cmd := env.Command{Argv: []string{"x"}, Vars: []string{"A=b", "X_TOKEN=x"}}
	if _, err := e.Exec(t.Context(), cmd); err != nil {
		t.Errorf("Exec gives %v: a Check without ReadOnly must not reject", err)
	}
	if diff := cmp.Diff([]string{"A=b"}, got); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	if _, err := e.WriteFile(t.Context(), "f", strings.NewReader("x"),
		env.WriteOptions{}); err != nil {
		t.Errorf("WriteFile gives %v", err)
	}
	e = wrap.Apply(inner, wrap.Options{Vars: &vars.Filter{Mode: vars.All}})
	if _, err := e.Exec(t.Context(), cmd); err != nil || len(got) != 2 {
		t.Errorf("with all variables, Exec gives %v and passes %v", err, got)
	}
}
