package helper

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/env/vars"
)

// pack returns a directory with a program for linux/amd64.
func pack(t *testing.T, program []byte) fstest.MapFS {
	t.Helper()
	sum := sha256.Sum256(program)
	return packAs(t, program, hex.EncodeToString(sum[:]))
}

// packAs is pack with a digest of the caller's.
func packAs(t *testing.T, program []byte, digest string) fstest.MapFS {
	t.Helper()
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, err := w.Write(program)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return fstest.MapFS{
		"bin/.gitignore": {Data: []byte("*\n")},
		"bin/sandboxd-linux-amd64-" + digest + ".gz": {Data: z.Bytes()},
	}
}

func mustFind(t *testing.T, files fs.FS) *Program {
	t.Helper()
	h, err := find(files, "linux", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestFind(t *testing.T) {
	program := []byte("a program")
	sum := sha256.Sum256(program)
	h := mustFind(t, pack(t, program))
	if want := hex.EncodeToString(sum[:]); h.Digest != want ||
		h.Name != "sandboxd-linux-amd64-"+want {
		t.Errorf("found %q with digest %q", h.Name, h.Digest)
	}
	r, err := h.Open()
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, program) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestFindNothing(t *testing.T) {
	for _, tt := range []struct {
		name  string
		files fstest.MapFS
	}{
		{"an empty directory", fstest.MapFS{"bin/.gitignore": {}}},
		{
			"another platform",
			fstest.MapFS{"bin/sandboxd-linux-arm64-" + strings.Repeat("0", 64) + ".gz": {}},
		},
		{"a name without a digest", fstest.MapFS{"bin/sandboxd-linux-amd64-.gz": {}}},
		{"a short digest", fstest.MapFS{"bin/sandboxd-linux-amd64-abcd.gz": {}}},
		{
			"an uncompressed program",
			fstest.MapFS{"bin/sandboxd-linux-amd64-" + strings.Repeat("0", 64): {}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := find(tt.files, "linux", "amd64")
			if !errors.Is(err, ErrNotEmbedded) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestOpenBadContent(t *testing.T) {
	good := pack(t, []byte("a program"))
	broken := fstest.MapFS{}
	for name, f := range good {
		if data := bytes.Clone(f.Data); strings.HasSuffix(name, ".gz") {
			data[len(data)/2] ^= 1
			broken[name] = &fstest.MapFile{Data: data}
		}
	}
	for _, tt := range []struct {
		name  string
		files fstest.MapFS
	}{
		{"another digest", packAs(t, []byte("a program"), strings.Repeat("0", 64))},
		{"broken compression", broken},
		{"too large", pack(t, make([]byte, maxSize+1))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := mustFind(t, tt.files).Open()
			if err != nil {
				return
			}
			if _, err = io.Copy(io.Discard, r); err == nil {
				t.Error("it is read without an error")
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestStartRoundTrip(t *testing.T) {
	for _, want := range []Start{
		{Inherit: vars.None},
		{
			Dir: "/a b/\xff\n\"", Vars: []string{"A=1", "B=\xfe\x00<>&\u2028", "=x", "C="},
			Inherit: vars.All,
		},
	} {
		b, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var got Start
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestStartDefaults(t *testing.T) {
	var got Start
	if err := json.Unmarshal([]byte(`{}`), &got); err != nil || got.Inherit != vars.None {
		t.Errorf("%+v, %v: want nothing to be inherited", got, err)
	}
	for _, bad := range []string{`{"inherit":"some"}`, `{"dir":7}`, `{"vars":["no base64!"]}`, `[]`} {
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s is understood as %+v", bad, got)
		}
	}
}

func TestSandbox(t *testing.T) {
	for _, want := range []Sandbox{
		{},
		{Dir: "/a b/\xff\n\"'", Sandbox: env.Sandbox{
			Require: true, Enforce: []env.GuaranteeName{env.NoNetwork}, Network: true, Write: []string{
				"w\xfe",
				"'\\",
			}, Read: []string{"~/r"}, Hide: []string{"/h\x01"}, NoUnixSockets: true,
			GitReadOnly: true,
		}},
	} {
		text, err := want.Text()
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseSandbox(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Error(diff, err)
		}
		if strings.ContainsAny(text, "'\\!\n") {
			t.Errorf("%s has characters that not every shell takes as they are", text)
		}
	}
	for _, bad := range []string{"", "{", `{"dir":7}`, `{"write":["no base64!"]}`} {
		if got, err := ParseSandbox(bad); err == nil {
			t.Errorf("%q is understood as %+v", bad, got)
		}
	}
	names := []string{"", "~", "~/a", "a/b", "/a", "~x", ".vscode", "./.git", "../.git"}
	there := Sandbox{Dir: "w", Sandbox: env.Sandbox{Write: names}}.At("/home/u")
	if diff := cmp.Diff([]string{
		"/home/u", "/home/u", "/home/u/a", "/home/u/a/b", "/a", "/home/u/~x", "/home/u/w/.vscode",
		"/home/u/w/.git", "/home/.git",
	}, there.Write); diff != "" || there.Dir != "/home/u/w" || names[0] != "" {
		t.Errorf("%s, %+v", diff, there)
	}
}
