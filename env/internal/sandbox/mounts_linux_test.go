package sandbox

import (
	"slices"
	"strings"
	"testing"

	"github.com/moby/sys/mountinfo"
)

// TestMountTable has tables of machines that a test cannot make.
func TestMountTable(t *testing.T) {
	for name, tt := range map[string]struct {
		table string
		of    string
		want  []string
	}{
		"one mount": {"1 0 8:1 / /", "/home/u", nil},
		"a bind mount of the parent": {
			"1 0 8:1 / /\n2 1 8:1 /home /mnt/h", "/home/u", []string{"/mnt/h/u"},
		},
		"a home of its own, and the root again": {
			"1 0 8:1 / /\n2 1 8:2 / /home\n3 1 8:1 / /mnt/r\n4 1 8:2 / /mnt/h", "/home/u",
			// The last two hide names of directories above the home that other mounts cover.
			[]string{"/mnt/h/u", "/mnt/r/home", "/mnt/r/mnt/h", "/mnt/r/mnt/r"},
		},
		"subvolumes of btrfs": {
			"1 0 0:30 /@ /\n2 1 0:30 /@home /home\n3 1 0:30 / /mnt/top", "/home/u",
			[]string{"/mnt/top/@home/u", "/mnt/top/@/home", "/mnt/top/@/mnt/top"},
		},
		"a name with a blank": {
			`1 0 8:1 / /` + "\n" + `2 1 8:1 /home\040x /a\040b`, "/home x/u",
			[]string{"/a b/u"},
		},
		"a home from elsewhere": {
			"1 0 8:1 / /\n2 1 8:1 /data/u /home/u", "/home/u/.ssh",
			[]string{"/data/u/.ssh"},
		},
		"a part of it": {
			"1 0 8:1 / /\n2 1 8:1 /home/u/src /work\n3 1 8:1 /home/v /v", "/home/u",
			[]string{"/work of /home/u/src"},
		},
		"a mount on another one": {
			"1 0 8:1 / /\n2 1 8:1 /old /home\n3 2 8:1 /new /home\n4 1 8:1 /old/u /a\n" +
				"5 1 8:1 /new/u /b", "/home/u",
			[]string{"/b", "/new/u"},
		},
		"a covered way": {
			"1 0 8:1 / /\n2 1 8:2 / /home/u\n3 1 0:9 / /home", "/home/u", nil,
		},
		"a root that is no mount point": {"2 1 8:1 /home /mnt/h", "/home/u", nil},
		"other file systems": {
			"1 0 8:1 / /\n2 1 0:4 net:[4026531992] /run/netns/x\n3 1 8:2 / /b\n4 1 8:2 / /c", "/home/u", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			for line := range strings.Lines(tt.table) {
				text.WriteString(strings.TrimSpace(line) + " rw - ext4 none rw\n")
			}
			all, err := mountinfo.GetMountsFromReader(strings.NewReader(text.String()), nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range mountTable(all).files().aliases(tt.of) {
				if a.of != tt.of {
					a.name += " of " + a.of
				}
				got = append(got, a.name)
			}
			slices.Sort(got)
			slices.Sort(tt.want)
			if got = slices.Compact(got); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
