package sandbox

import (
	"os"
	"path/filepath"
	"strings"
)

// kernelSettings keep ordinary users from creating user namespaces.
var kernelSettings = []struct{ file, value, hint string }{
	{
		"kernel/apparmor_restrict_unprivileged_userns", "1",
		"AppArmor restricts user namespaces (kernel.apparmor_restrict_unprivileged_userns is 1); " +
			"a profile for bwrap that has \"userns\", or the setting 0, allows them",
	},
	{
		"kernel/unprivileged_userns_clone", "0",
		"only root may make user namespaces (kernel.unprivileged_userns_clone is 0); " +
			"the setting 1 allows them",
	},
	{
		"user/max_user_namespaces", "0",
		"user namespaces are limited to none (user.max_user_namespaces is 0); " +
			"a higher number allows them",
	},
}

// Hint returns the kernel setting that may be why a mechanism does not work, or "".
func Hint(by Mechanism) string {
	if by != Bubblewrap {
		return ""
	}
	return hint("/proc/sys")
}

func hint(settings string) string {
	for _, s := range kernelSettings {
		if data, err := os.ReadFile(filepath.Join(settings, s.file)); err == nil &&
			strings.TrimSpace(string(data)) == s.value {
			return s.hint
		}
	}
	return ""
}
