package sandboxd

import "testing"

func TestParseMemoryKills(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       uint64
		ok         bool
	}{
		{"second version", "low 0\nhigh 0\nmax 44\noom 3\noom_kill 2\noom_group_kill 0\n", 2, true},
		{"first version", "oom_kill_disable 0\nunder_oom 0\noom_kill 7\n", 7, true},
		{"without an end of line", "oom_kill 1", 1, true},
		{"not counted", "oom_kill_disable 0\nunder_oom 0\n", 0, false},
		{"no number", "oom_kill x\n", 0, false},
		{"empty", "", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got, ok := parseMemoryKills([]byte(tt.text)); got != tt.want || ok != tt.ok {
				t.Errorf("%d, %t; want %d, %t", got, ok, tt.want, tt.ok)
			}
		})
	}
}
