package probe

import (
	"encoding/json"
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
	tooMany, err := json.Marshal(Document{Version: Version, Limits: many})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ text, want string }{
		"nothing":       {"", "EOF"},
		"empty":         {"{}", "version 0"},
		"good":          {`{"version":1,"status":{"Uid":"1"}}`, ""},
		"other version": {`{"version":2}`, "version 2"},
		"unknown field": {`{"version":1,"extra":1}`, "unknown field"},
		"wrong type":    {`{"version":1,"tries":[]}`, "cannot unmarshal"},
		"more":          {`{"version":1} {}`, "behind the end"},
		"cut":           {`{"version":1,`, "unexpected EOF"},
		"too long":      {`{"version":1}` + strings.Repeat(" ", MaxDocument), "more than 262144 bytes"},
		"too many":      {string(tooMany), "limits, more than"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Decode([]byte(test.text))
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

func TestDecodeRequest(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"empty":          {"{}", ""},
		"good":           {`{"write":["/tmp"],"connect":["127.0.0.1:80"]}`, ""},
		"relative":       {`{"execute":["tmp"]}`, "no absolute name"},
		"somebody else":  {`{"connect":["192.0.2.1:80"]}`, "not on 127.0.0.1"},
		"unknown":        {`{"shell":"x"}`, "unknown field"},
		"too long":       {`{}` + strings.Repeat(" ", MaxRequest), "more than"},
		"too many names": {`{"find":["a"` + strings.Repeat(`,"a"`, maxNames) + `]}`, "257 names"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeRequest(strings.NewReader(test.text))
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
}

// FuzzDecode sees that what is decoded comes out the same a second time.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1,"status":{"Uid":"1"},"namespaces":{"pid":1},"mounts":[{"point":"/","type":"overlay","read_only":true}],"devices":{"/dev/null":"c 1:3"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Decode(data)
		if err != nil {
			return
		}
		again, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) > MaxDocument { // escapes are longer than what they stand for
			return
		}
		e, err := Decode(again)
		if diff := cmp.Diff(d, e); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
	})
}
