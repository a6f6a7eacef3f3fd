package env

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"testing"
)

// shelf holds files, which are read alone by Open, and together by ReadFiles unless that fails.
type shelf struct {
	FileReader
	files  map[string]string
	opened []string
	fail   error
}

func (s *shelf) Open(_ context.Context, name string) (fs.File, error) {
	s.opened = append(s.opened, name)
	return newKnownFile(name, []byte(s.files[name])), nil
}

func (s *shelf) ReadFiles(_ context.Context, names []string, limit int64) ([]FileContent, error) {
	var all []FileContent
	for _, name := range names {
		c := FileContent{Name: name, Data: []byte(s.files[name])}
		switch _, ok := s.files[name]; {
		case !ok:
			c.Data, c.Err = nil, pathError("open", name, fs.ErrNotExist)
		case int64(len(c.Data)) > limit:
			c.Data, c.Err = nil, pathError("read", name, tooLarge(limit))
		}
		all = append(all, c)
	}
	return all, s.fail
}

// TestOpenAll reads files together, and leaves to Open what that does not give.
func TestOpenAll(t *testing.T) {
	files := map[string]string{"a": "one", "empty": "", "large": string(make([]byte, readTogether+1)), "z": "two"}
	names := []string{"z", "missing", "large", "a", "empty"}
	failure := errors.New("failure")
	for _, tt := range []struct {
		what   string
		hide   bool
		fail   error
		err    error // of all
		alone  []string
		absent bool // an error says that one is missing
	}{
		{what: "together", alone: []string{"large"}, absent: true},
		{what: "a failure", fail: failure, alone: names},
		{what: "alone", hide: true, alone: names},
		{what: "closed", fail: fs.ErrClosed, err: fs.ErrClosed},
	} {
		s := &shelf{files: files, fail: tt.fail}
		var e FileReader = s
		if tt.hide {
			e = struct{ FileReader }{s}
		}
		got := openAll(t.Context(), e, names)
		if len(got) != len(names) || len(s.opened) != 0 {
			t.Fatalf("%s: %d files, %q are open", tt.what, len(got), s.opened)
		}
		for i, o := range got {
			f, err := o.open(t.Context(), e)
			if o.name != names[i] || tt.err != nil && !errors.Is(err, tt.err) || tt.absent && errors.Is(err, fs.ErrNotExist) != (names[i] == "missing") {
				t.Errorf("%s: %s is %s, error %v", tt.what, names[i], o.name, err)
			}
			var pe *fs.PathError
			if err != nil {
				if !errors.As(err, &pe) || pe.Path != names[i] {
					t.Errorf("%s: the error of %s is %v", tt.what, names[i], err)
				}
				continue
			}
			data, err := io.ReadAll(f)
			if err != nil || string(data) != files[names[i]] {
				t.Errorf("%s: %s has %d bytes, error %v", tt.what, names[i], len(data), err)
			}
		}
		if !slices.Equal(s.opened, tt.alone) {
			t.Errorf("%s: %q are read alone, want %q", tt.what, s.opened, tt.alone)
		}
	}
	if got := openAll(t.Context(), &shelf{}, nil); len(got) != 0 {
		t.Errorf("nothing gives %v", got)
	}
}
