package sandboxd

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// installMode permits execution but no reading: the kernel protects a process of an unreadable
// program from other processes of the same user from its start.
const installMode = 0o111

// mainInstall copies this program to a file, for an image without other programs, and makes
// directories that belong to its user.
func mainInstall(args []string) int {
	flags := newFlags("install")
	switch err := flags.Parse(args); {
	case err != nil:
		return usage(err)
	case flags.NArg() == 0:
		return usage(errors.New("install: FILE is missing"))
	}
	if err := install(flags.Arg(0), flags.Args()[1:]); err != nil {
		return fail(err)
	}
	return exitOK
}

func install(name string, dirs []string) error {
	for _, dir := range dirs {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("install: %w", err)
	}
	in, err := os.Open(self)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // it was only read
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(installMode), out.Close())
}
