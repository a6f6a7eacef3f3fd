package confine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sandboxagent/sandboxagent/env"
)

// sandboxExec is the program that confines. It belongs to the system, whose files nobody can change.
const sandboxExec = "/usr/bin/sandbox-exec"

// onMac are files and folders below a home folder of macOS in which secrets are kept.
var onMac = []string{
	"Library/Keychains", "Library/Cookies", "Library/HTTPStorages", "Library/Safari", "Library/Mail", "Library/Messages", "Library/Accounts",
	"Library/Application Support/sandboxagent", "Library/Application Support/Google/Chrome",
	"Library/Application Support/Chromium", "Library/Application Support/BraveSoftware", "Library/Application Support/Microsoft Edge",
	"Library/Application Support/Vivaldi", "Library/Application Support/com.operasoftware.Opera", "Library/Application Support/Arc",
	"Library/Application Support/Firefox", "Library/Application Support/Slack", "Library/Application Support/Signal",
	"Library/Application Support/discord", "Library/Application Support/Claude", "Library/Application Support/Bitwarden",
	"Library/Application Support/1Password", "Library/Application Support/rclone",
	"Library/Preferences/netlify", "Library/Application Support/com.vercel.cli", "Library/Application Support/heroku", ".zsh_sessions",
}

// Mechanisms returns those that this system may have, the stronger one first.
func Mechanisms() []Mechanism { return []Mechanism{SandboxExec} }

// Hint returns nothing.
func Hint(Mechanism) string { return "" }

// Available returns why a mechanism cannot be had on this machine, as far as can be told without starting anything.
func Available(by Mechanism) error {
	if by != SandboxExec {
		return &Error{By: by, Err: errors.ErrUnsupported}
	}
	info, err := os.Stat(sandboxExec)
	if err == nil && (!info.Mode().IsRegular() || info.Mode()&0o111 == 0) {
		err = fmt.Errorf("%s is no program", sandboxExec)
	}
	if err != nil {
		return &Error{By: by, Err: err}
	}
	return nil
}

// New returns what a policy means on this machine for a mechanism. The error is an *Error if the mechanism cannot be had or
// cannot enforce the policy, and tells of a mistake in the policy otherwise. The variables that getenv knows, and the home
// folders, tell where secrets are kept. The caller sets Temp, and calls Tidy in the end.
func New(p Policy, by Mechanism, homes []string, getenv func(string) string) (Plan, error) {
	homes = slices.Clone(homes)
	if os.Geteuid() == 0 { // who can read all
		users, _ := filepath.Glob("/Users/*") // the pattern is a good one
		for _, home := range users {
			if isFolder(home) && home != "/Users/Shared" && !slices.Contains(homes, home) {
				homes = append(homes, home)
			}
		}
	}
	p.Hide = slices.Clone(p.Hide)
	for _, home := range homes {
		for _, name := range onMac {
			p.Hide = append(p.Hide, filepath.Join(home, name))
		}
	}
	plan, err := resolve(p, homes, getenv)
	if err != nil {
		return Plan{}, err
	}
	plan.By = by
	if err = Available(by); err == nil {
		if _, _, err = plan.profile(); err != nil {
			err = &Error{By: by, Err: err}
		}
	}
	if err != nil {
		plan.unlock()
		return Plan{}, err
	}
	return plan, nil
}

// Outdated reports false: a rule may be about what is not there.
func (p *Plan) Outdated() bool { return false }

// Command returns the command that starts an open program, by its name, with args. The program calls Received before it does
// anything else. The caller calls release when the command has been started, or will not be.
func (p *Plan) Command(program *os.File, handed Handed, args ...string) (cmd *exec.Cmd, release func(), err error) {
	if p.Temp == "" {
		return nil, nil, &Error{By: p.By, Err: fmt.Errorf("there is no folder for temporary files: %w", fs.ErrInvalid)}
	}
	path, err := filepath.Abs(program.Name())
	if err != nil {
		return nil, nil, err
	}
	if err := same(program, path); err != nil {
		return nil, nil, err
	}
	text, parameters, err := p.profile()
	if err != nil {
		return nil, nil, &Error{By: p.By, Err: err}
	}
	if err := p.hold(); err != nil {
		return nil, nil, &Error{By: p.By, Err: err}
	}
	plan, err := p.file()
	if err != nil {
		return nil, nil, err
	}
	files, release, err := handed.files(program, plan)
	if err != nil {
		return nil, nil, err
	}
	argv := []string{sandboxExec}
	for _, parameter := range parameters {
		argv = append(argv, "-D", parameter)
	}
	argv = append(append(argv, "-p", text, path), args...)
	cmd = &exec.Cmd{Path: sandboxExec, Args: argv, ExtraFiles: files}
	return cmd, release, nil
}

// same returns an error if a path stands for another file than an open one.
func same(f *os.File, path string) error {
	open, err := f.Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !os.SameFile(open, there) {
		return fmt.Errorf("%s has become another file", path)
	}
	return nil
}

// file returns the plan as a file without a name.
func (p *Plan) file() (*os.File, error) {
	f, err := os.CreateTemp("", "sandboxagent-plan-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return p.fill(f)
}

// Enter verifies what can be tried of the profile with which sandbox-exec has started this process. It returns an *Error about
// what is not as planned. The process then must not go on.
func Enter(p Plan) error {
	if err := p.enter(); err != nil {
		return &Error{By: p.By, Err: err}
	}
	return nil
}

func (p *Plan) enter() error {
	if p.By != SandboxExec {
		return fmt.Errorf("%q is no mechanism: %w", p.By, fs.ErrInvalid)
	}
	keepFiles()
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil { // cores go where the machine puts them
		return os.NewSyscallError("setrlimit", err)
	}
	// Everybody may make files in the first two.
	if err := p.tried(append([]string{"/private/tmp", "/private/var/tmp"}, Homes()...)); err != nil {
		return err
	}
	if parent := unix.Getppid(); parent > 1 && unix.Kill(parent, 0) == nil {
		return errors.New("the process can send signals to the one that started it")
	}
	return nil
}

// Guarantees returns what this plan has done once Enter has succeeded, and what not.
func (p *Plan) Guarantees() []env.Guarantee { return p.bySandboxExec() }

// realName returns a name without links, spelt as the file system has it, which may take other spellings for the same name.
func realName(name string) (string, error) {
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		return "", err
	}
	if spelt, ok := spelling(real); ok {
		return spelt, nil
	}
	if dir := filepath.Dir(real); dir != real {
		if spelt, ok := spelling(dir); ok { // that cannot be opened itself
			return filepath.Join(spelt, filepath.Base(real)), nil
		}
	}
	return real, nil
}

// spelling returns how the file system spells the name of a file or a folder that can be opened.
func spelling(name string) (string, bool) {
	info, err := os.Lstat(name)
	if err != nil || !info.IsDir() && !info.Mode().IsRegular() {
		return "", false
	}
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", false
	}
	defer unix.Close(fd) //nolint:errcheck // it has served
	var path [unix.PathMax]byte
	_, _, errno := unix.Syscall(unix.SYS_FCNTL, uintptr(fd), unix.F_GETPATH, uintptr(unsafe.Pointer(&path[0]))) //nolint:staticcheck // there is no wrapper for this command
	return unix.ByteSliceToString(path[:]), errno == 0
}
