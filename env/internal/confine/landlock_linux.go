package confine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/landlock-lsm/go-landlock/landlock"
	landlocksys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// Versions of Landlock's interface.
const (
	// leastABI is the first with which no file can be cut short that may not be changed.
	leastABI = 3
	// scopeABI keeps signals and abstract sockets inside.
	scopeABI = 6
	// socketABI keeps programs from the sockets of others.
	socketABI = 9
)

// devices are what programs expect to be able to use.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts"}

// landlockABI returns the version that the kernel has; an error says why it has none.
func landlockABI() (int, error) {
	version, err := landlocksys.LandlockGetABIVersion()
	switch {
	case errors.Is(err, unix.ENOSYS):
		return 0, errors.New("the kernel has none, or a filter of system calls hides it")
	case errors.Is(err, unix.EOPNOTSUPP):
		return 0, errors.New("it is switched off; the kernel's parameter lsm= must name landlock")
	case err != nil:
		return 0, os.NewSyscallError("landlock_create_ruleset", err)
	case version < leastABI:
		return 0, fmt.Errorf("the kernel has version %d, which lets programs cut files short; it takes version %d, which Linux 6.2 has", version, leastABI)
	}
	return version, nil
}

// planLandlock completes a plan. Nothing can be hidden below what may be changed.
func planLandlock(p Plan) (Plan, error) {
	if _, err := landlockABI(); err != nil {
		return Plan{}, &Error{By: Landlock, Err: err}
	}
	for _, name := range p.Hidden {
		if p.below(name) {
			return Plan{}, &Error{By: Landlock, Err: fmt.Errorf("%s cannot be hidden there, in a folder that may be changed", name)}
		}
	}
	p.By = Landlock
	return p, nil
}

// config returns all that a version of the interface can restrict.
func config(version int) landlock.Config {
	versions := []landlock.Config{3: landlock.V3, 4: landlock.V4, 5: landlock.V5, 6: landlock.V6, 7: landlock.V7, 8: landlock.V8, 9: landlock.V9}
	return versions[min(version, len(versions)-1)]
}

// restrict has the kernel allow this process the reading of what is not hidden, and the changing of what may be changed.
func (p *Plan) restrict() error {
	version, err := landlockABI()
	if err != nil {
		return err
	}
	folders, files, err := p.readable()
	if err != nil {
		return err
	}
	rules := []landlock.Rule{
		landlock.RODirs(folders...).IgnoreIfMissing(), landlock.ROFiles(files...).IgnoreIfMissing(),
		landlock.PathAccess(landlocksys.AccessFSReadDir, "/dev"),
		landlock.RWFiles(devices...).WithIoctlDev().IgnoreIfMissing(),
	}
	for _, name := range append(slices.Clone(p.Write), p.Temp) {
		if isFolder(name) {
			rules = append(rules, landlock.RWDirs(name).WithRefer())
		} else {
			rules = append(rules, landlock.RWFiles(name))
		}
	}
	c := config(version)
	if p.Network {
		c.HandledAccessNet = 0
	}
	// All in one: one that restricts no files keeps them from moving to other folders all the same.
	return c.Restrict(rules...)
}

// readable returns folders and files that are all of the file system but what is hidden and what leads there: what is
// allowed of a folder is allowed of everything below it.
func (p *Plan) readable() (dirs, files []string, err error) {
	var visit func(dir string) error
	visit = func(dir string) error {
		if dir == "/dev" {
			return nil // root reads disks there
		}
		leads := slices.ContainsFunc(p.Hidden, func(h string) bool { return h != dir && inside(h, dir) })
		switch {
		case slices.Contains(p.Hidden, dir):
			return nil
		case !leads && dir != "/":
			dirs = append(dirs, dir)
			return nil
		}
		entries, err := os.ReadDir(dir)
		if errors.Is(err, os.ErrPermission) {
			return nil // then it cannot be read anyway
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			name := filepath.Join(dir, e.Name())
			switch {
			case !exists(name): // any more, or for this user
			case e.IsDir():
				if err := visit(name); err != nil {
					return err
				}
			case e.Type()&os.ModeSymlink == 0 && !slices.Contains(p.Hidden, name):
				files = append(files, name)
			}
		}
		return nil
	}
	err = visit("/")
	for _, name := range slices.Concat(p.Read, p.Write) {
		if isFolder(name) {
			dirs = append(dirs, name)
		} else {
			files = append(files, name)
		}
	}
	return dirs, files, err
}
