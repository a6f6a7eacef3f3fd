package integration_test

import (
	"errors"
	"io/fs"
	"slices"
	"testing"

	"github.com/sandboxagent/sandboxagent/runtime/llm/llmtest"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// proveEditFormat uses the provider's own way of editing with all that it can do.
func proveEditFormat(t *testing.T, p provider) {
	if p.name == "openai" {
		provePatch(t, p)
		return
	}
	edit := func(from, to string, all bool) llmtest.Call {
		return use("edit_file", map[string]any{
			"file_path": "f.py", "old_string": from, "new_string": to, "replace_all": all,
		})
	}
	s := p.session(t, llmtest.Sequence(
		llmtest.Use(edit("    return 1", "    return 2", false)),
		llmtest.Use(edit("x = 0", "x = 5", false)),
		llmtest.Use(edit("x = 0", "x = 5", true)),
		llmtest.Use(edit("def two():\n    print(\"hi\")", "def two():\n    print(\"ho\")", false)),
		llmtest.Use(edit("nowhere to be found", "y", false)),
		llmtest.Text("edited"),
	))
	s.write("f.py", "def one():\r\n    return 1\r\nx = 0\r\nx = 0\r\ndef two():  \r\n    "+
		"print(“hi”)\r\n")
	res := s.submit("edit it")
	wantContains(t, "the unique edit's result", s.shown(1)[0], "made 1 replacement in f.py, at line 2")
	wantContains(t, "the ambiguous edit's result", s.shown(2)[0], "occurs 2 times", "at lines 3, 4",
		"replace_all")
	wantContains(t, "the result of replacing all", s.shown(3)[0], "made 2 replacements", "lines 3, 4")
	wantContains(t, "the loose edit's result", s.shown(4)[0], "made 1 replacement", "matched only")
	wantContains(t, "the lost edit's result", s.shown(5)[0], "old_string is not in f.py")
	for n, failed := range []bool{1: false, 2: true, 3: false, 4: false, 5: true} {
		if n > 0 {
			p.wantResults(t, s.request(n), failed)
		}
	}
	s.wantFile("f.py", "def one():\r\n    return 2\r\nx = 5\r\nx = 5\r\ndef two():  \r\n    "+
		"print(\"ho\")\r\n")
	if len(res.Failures) != 2 || res.Failures[0].Kind != string(tool.KindEditConflict) ||
		res.Failures[1].Kind != string(tool.KindEditConflict) {
		t.Errorf("failures %+v", res.Failures)
	}
	if slices.Contains(toolNames(s.request(0)), "apply_patch") {
		t.Error("the model is offered apply_patch beside edit_file")
	}
}

func provePatch(t *testing.T, p provider) {
	s := p.session(t, llmtest.Sequence(
		llmtest.Use(patch("*** Update File: f.py\n@@ def two():\n-    return 0\n+    return 2\n@@ def "+
			"three():\n     a = 1\n-    return 0\n+    return 3\n"+
			"*** Add File: sub/new.py\n+first\n+\n+third\n*** Delete File: gone.py\n*** Update File: "+
			"old.py\n*** Move to: moved/new_name.py\n@@\n-import old\n+import new\n*** End of File\n")),
		llmtest.Use(patch("*** Update File: loose.txt\n@@\n say \"hi\"\n-last line\n+LAST line\n")),
		llmtest.Use(patch("*** Update File: f.py\n@@\n-not there at all\n+x\n")),
		llmtest.Use(patch("*** Update File: twice.txt\n@@\n-    same\n+other\n")),
		llmtest.Use(patch("*** Update File: ../outside.txt\n@@\n-a\n+b\n"),
			llmtest.Call{Name: "apply_patch", Arguments: `{"patch":"*** Update File: f.py"}`}),
		llmtest.Text("patched"),
	))
	s.write("f.py", "def one():\n    return 0\ndef two():\n    return 0\ndef three():\n    a = 1\n "+
		"   return 0\n")
	s.write("gone.py", "gone\n")
	s.write("old.py", "import os\nimport old\n")
	s.write("loose.txt", "say “hi”  \r\nlast line \r\n")
	s.write("twice.txt", "same\nsame\n")
	res := s.submit("patch it")
	wantContains(t, "the first result", s.shown(1)[0], "M f.py", "A sub/new.py", "D gone.py",
		"moved/new_name.py")
	s.wantFile("f.py", "def one():\n    return 0\ndef two():\n    return 2\ndef three():\n    a = "+
		"1\n    return 3\n")
	s.wantFile("sub/new.py", "first\n\nthird\n")
	s.wantFile("moved/new_name.py", "import os\nimport new\n")
	s.wantFile("loose.txt", "say “hi”  \r\nLAST line\r\n")
	s.wantFile("twice.txt", "same\nsame\n")
	for _, name := range []string{"gone.py", "old.py"} {
		if _, err := s.env.Stat(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s exists (%v)", name, err)
		}
	}
	wantContains(t, "the loose patch's result", s.shown(2)[0], "M loose.txt")
	wantContains(t, "the lost patch's result", s.shown(3)[0], "f.py")
	wantContains(t, "the ambiguous patch's result", s.shown(4)[0], "twice.txt")
	wantContains(t, "the result of the patch outside", s.shown(5)[0], "outside")
	wantContains(t, "the malformed patch's result", s.shown(5)[1], "parse the patch: ")
	var kinds []string
	for _, f := range res.Failures {
		kinds = append(kinds, f.Kind)
	}
	if want := []string{
		string(tool.KindEditConflict), string(tool.KindEditConflict), string(tool.KindPermission),
		string(tool.KindValidation),
	}; !slices.Equal(kinds, want) {
		t.Errorf("failures %v, want %v", kinds, want)
	}
}
