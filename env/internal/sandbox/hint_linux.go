package sandbox

import (
	"os"
	"path/filepath"
	"strings"
)

// switches are settings of the kernel that keep ordinary users from namespaces of their own.
var kernelSettings = []struct{ file, value, hint string }{
	{
		"kernel/apparmor_restrict_unprivileged_userns", "1",
		"AppArmor restricts user namespaces (kernel.apparmor_restrict_unprivileged_userns is 1); a profile for bwrap that has \"userns\", or the setting 0, allows them",
	},
	{
		"kernel/unprivileged_userns_clone", "0",
		"only root may make user namespaces (kernel.unprivileged_userns_clone is 0); the setting 1 allows them",
	},
	{
		"user/max_user_namespaces", "0",
		"there may be no user namespaces (user.max_user_namespaces is 0); a higher number allows them",
	},
}

// Hint returns what of this machine's settings may be the reason why a mechanism that could be had does not work; empty
// if nothing is known.
func Hint(by Mechanism) string {
	if by != Bubblewrap {
		return ""
	}
	return hint("/proc/sys")
}

func hint(settings string) string {
	for _, s := range kernelSettings {
		if data, err := os.ReadFile(filepath.Join(settings, s.file)); err == nil && strings.TrimSpace(string(data)) == s.value {
			return s.hint
		}
	}
	return ""
}
