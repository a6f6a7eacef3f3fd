package verify

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDecode(t *testing.T) {
	many := make(map[string]string)
	for i := range maxEntries + 1 {
		many[strconv.Itoa(i)] = ""
	}
	tooMany, err := json.Marshal(document{Limits: many})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ text, want string }{
		"nothing":       {"", "EOF"},
		"good":          {`{"status":{"Uid":"1"}}`, ""},
		"unknown field": {`{"extra":1}`, "unknown field"},
		"wrong type":    {`{"tries":[]}`, "cannot unmarshal"},
		"more":          {`{} {}`, "trailing data"},
		"cut":           {`{"status":`, "unexpected EOF"},
		"too long":      {`{}` + strings.Repeat(" ", maxDocument), "more than 262144 bytes"},
		"too many":      {string(tooMany), "limits, more than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decodeDocument([]byte(test.text))
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

func TestProbe(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the probe needs Linux")
	}
	dir := t.TempDir()
	in := strings.NewReader(`{"tries":["write ` + dir + `","find ` + dir + `/none","no such"]}`)
	var out bytes.Buffer
	if err := Probe(t.Context(), in, &out); err != nil {
		t.Fatal(err)
	}
	d, err := decodeDocument(out.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"write " + dir: "ok", "find " + dir + "/none": "ENOENT",
		"no such": "unknown attempt",
	}
	if diff := cmp.Diff(want, d.Tries); diff != "" {
		t.Error(diff)
	}
	if err := Probe(t.Context(), strings.NewReader(`{"shell":"x"}`), &out); err == nil {
		t.Error("an unknown field is accepted")
	}
}

// FuzzDecode decodes, encodes and decodes again, with the same result.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"status":{"Uid":"1"},"namespaces":{"pid":1},` +
		`"mounts":[{"point":"/","type":"overlay","read_only":true}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := decodeDocument(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) > maxDocument { // escapes are longer than the characters
			return
		}
		e, err := decodeDocument(again)
		if diff := cmp.Diff(d, e); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}
