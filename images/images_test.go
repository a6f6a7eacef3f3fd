package images

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestListIsComplete(t *testing.T) {
	var names, seen []string
	for _, image := range List() {
		names = append(names, image.Name)
		if image.Base == DefaultReference && !slices.Contains(seen, DefaultReference) {
			t.Errorf("%s stands before the image on which it is built", image.Name)
		}
		seen = append(seen, image.Reference)
		if image.Description == "" || !strings.HasSuffix(image.Reference, ":latest") {
			t.Errorf("%+v is incomplete", image)
		}
	}
	files, err := fs.Glob(dockerfiles, "*/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, file := range files {
		have = append(have, strings.TrimSuffix(file, "/Dockerfile"))
	}
	slices.Sort(names)
	if diff := cmp.Diff(have, names); diff != "" {
		t.Errorf("listed (+) and there (-) differ:\n%s", diff)
	}
	if base, ok := Find("base"); !ok || base.Reference != DefaultReference ||
		base.Base != PublicReference {
		t.Errorf("the base image is %+v", base)
	}
}

// instruction matches the beginning of a logical line of a Dockerfile.
var instruction = regexp.MustCompile(`^([A-Z]+) (.*)$`)

func TestDockerfilesSuitTheClassicBuilder(t *testing.T) {
	known := []string{
		"ARG", "FROM", "RUN", "COPY", "LABEL", "ENV", "USER", "WORKDIR", "CMD",
		"ENTRYPOINT",
	}
	for _, image := range List() {
		t.Run(image.Name, func(t *testing.T) {
			source, err := Dockerfile(image.Name)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(string(source), "\\\n", "")
			var defaults []string
			last := map[string]string{}
			for line := range strings.Lines(text) {
				line = strings.TrimRight(line, "\n")
				if strings.HasPrefix(line, "#") {
					if strings.Contains(line, "=") && !strings.Contains(line, " --") {
						t.Errorf("a comment that may be a parser directive: %s", line)
					}
					continue
				}
				m := instruction.FindStringSubmatch(line)
				if m == nil || !slices.Contains(known, m[1]) || strings.Contains(line, "<<") ||
					regexp.MustCompile(`^(COPY --(chmod|link)|RUN --)`).MatchString(line) {
					t.Errorf("not for the classic builder: %s", line)
					continue
				}
				if m[1] == "ARG" {
					_, value, _ := strings.Cut(m[2], "=")
					defaults = append(defaults, value)
				}
				last[m[1]] = m[2]
			}
			want := image.From
			if image.Base != "" {
				want = append([]string{image.Base}, want...)
			}
			if diff := cmp.Diff(want, defaults); diff != "" {
				t.Errorf("the images of the list (-) and of the Dockerfile (+) differ:\n%s", diff)
			}
			if user := last["USER"]; user != "10001:10001" && user != "" {
				t.Errorf("it runs as %s", user)
			}
			if image.Name == "base" && last["LABEL"] != PreparedLabel+`="10001:10001"` {
				t.Errorf("its label is %s", last["LABEL"])
			}
		})
	}
}

func TestContext(t *testing.T) {
	programs := map[string][]byte{
		"sandboxd": []byte("helper\x00"), "sandboxagent": []byte("program"),
		"else": []byte("x"),
	}
	type file struct {
		Name string
		Mode int64
		Data string
	}
	for _, image := range List() {
		t.Run(image.Name, func(t *testing.T) {
			source, err := Dockerfile(image.Name)
			if err != nil {
				t.Fatal(err)
			}
			want := []file{{"Dockerfile", 0o644, string(source)}}
			for _, program := range image.Programs {
				want = append(want, file{program, 0o755, string(programs[program])})
			}
			var one, two bytes.Buffer
			if err := errors.Join(WriteContext(&one, image.Name, programs), WriteContext(&two, image.Name,
				programs)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(one.Bytes(), two.Bytes()) {
				t.Error("two contexts differ")
			}
			var got []file
			for r := tar.NewReader(&one); ; {
				h, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				data, err := io.ReadAll(r)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, file{h.Name, h.Mode, string(data)})
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// full is a writer that is full after some bytes.
type full int

func (f *full) Write(p []byte) (int, error) {
	if len(p) > int(*f) {
		return 0, io.ErrShortWrite
	}
	*f -= full(len(p))
	return len(p), nil
}

func TestContextFails(t *testing.T) {
	for _, tt := range []struct{ name, image, want string }{
		{"unknown", "../go", `unknown image "../go"`},
		{"empty name", "", `unknown image ""`},
		{"without its program", "helper", "needs the program sandboxd"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			err := WriteContext(&out, tt.image, map[string][]byte{"sandboxd": {}})
			if err == nil || !strings.Contains(err.Error(), tt.want) || out.Len() > 0 {
				t.Errorf("got %v and %d bytes", err, out.Len())
			}
			if _, err := Dockerfile(tt.image); err == nil && tt.image != "helper" {
				t.Error("it has a Dockerfile")
			}
		})
	}
	for _, room := range []full{0, 600, 2000} {
		if err := WriteContext(&room, "helper", map[string][]byte{"sandboxd": make([]byte,
			1000)}); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("a full disk gives %v", err)
		}
	}
}
