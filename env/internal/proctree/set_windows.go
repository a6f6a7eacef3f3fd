package proctree

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/sandboxagent/sandboxagent/env"
)

// killedCode is the exit code of processes that are killed, so that it reads as 128+SIGKILL.
const killedCode = 137

// Set is the processes of one environment, in a job object. Its methods may be called concurrently.
type Set struct {
	// all holds all processes. The system kills them when its last handle is closed, also when this
	// process dies.
	all windows.Handle

	mu      sync.Mutex
	running map[*Process]struct{}
}

// New returns a Set.
func New() (*Set, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, os.NewSyscallError("CreateJobObject", err)
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		_ = windows.CloseHandle(job)
		return nil, os.NewSyscallError("SetInformationJobObject", err)
	}
	return &Set{all: job, running: make(map[*Process]struct{})}, nil
}

// Supervise is New: a job needs no supervisor.
func Supervise() (*Set, error) { return New() }

// Process is a command that was started, in a job.
type Process struct {
	// Started is the time of the start.
	Started time.Time
	// Exited is closed when the process has exited.
	Exited <-chan struct{}

	os      *os.Process
	set     *Set
	job     windows.Handle
	elapsed time.Duration // valid once Exited is closed
	state   *os.ProcessState
	err     error
	killed  bool // its job was terminated
}

// Start starts file as os.StartProcess does: suspended, until it is in its jobs. Each process that
// was started must be reaped.
func (s *Set) Start(file string, argv []string, attr *os.ProcAttr) (*Process, error) {
	attr.Sys = &syscall.SysProcAttr{
		CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP,
	}
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, os.NewSyscallError("CreateJobObject", err)
	}
	exited := make(chan struct{})
	p := &Process{Started: time.Now(), Exited: exited, set: s, job: job}
	if p.os, err = os.StartProcess(file, argv, attr); err != nil {
		_ = windows.CloseHandle(job)
		return nil, err
	}
	if err := release(p.os, s.all, job); err != nil {
		err = errors.Join(err, p.os.Kill())
		_, _ = p.os.Wait()
		_ = windows.CloseHandle(job)
		return nil, err
	}
	s.mu.Lock()
	s.running[p] = struct{}{}
	s.mu.Unlock()
	go func() {
		p.state, p.err = p.os.Wait()
		p.elapsed = time.Since(p.Started)
		close(exited)
	}()
	return p, nil
}

// release assigns a suspended process to jobs, the outer one first, and resumes it.
func release(child *os.Process, jobs ...windows.Handle) error {
	const access = windows.PROCESS_SET_QUOTA | windows.PROCESS_TERMINATE |
		windows.PROCESS_SUSPEND_RESUME
	handle, err := windows.OpenProcess(access, false, uint32(child.Pid))
	if err != nil {
		return os.NewSyscallError("OpenProcess", err)
	}
	defer func() { _ = windows.CloseHandle(handle) }()
	for _, job := range jobs {
		if err := windows.AssignProcessToJobObject(job, handle); err != nil {
			return os.NewSyscallError("AssignProcessToJobObject", err)
		}
	}
	resume := windows.NewLazySystemDLL("ntdll.dll").NewProc("NtResumeProcess")
	if err := resume.Find(); err != nil {
		return err
	}
	if status, _, _ := resume.Call(uintptr(handle)); status != 0 {
		return fmt.Errorf("NtResumeProcess: %w", windows.NTStatus(status))
	}
	return nil
}

// Elapsed returns the time from the start to the exit. The process must have exited.
func (p *Process) Elapsed() time.Duration { return p.elapsed }

// Reap returns the exit code, and SIGKILL for a process that was killed. The process must have
// exited.
func (p *Process) Reap() (code int, signal string, err error) {
	p.set.mu.Lock()
	delete(p.set.running, p)
	p.set.mu.Unlock()
	_ = windows.CloseHandle(p.job)
	if p.err != nil {
		return 0, "", p.err
	}
	if p.killed && p.state.ExitCode() == killedCode {
		signal = "SIGKILL"
	}
	return p.state.ExitCode(), signal, nil
}

// Stop sends CTRL+BREAK to p, and kills its job after grace. When it returns nil, the job is dead.
// It must not run beside Reap of p.
func (s *Set) Stop(p *Process, grace time.Duration) error {
	interrupt([]*Process{p}, grace)
	p.killed = true
	return os.NewSyscallError("TerminateJobObject", windows.TerminateJobObject(p.job, killedCode))
}

// accounting is JOBOBJECT_BASIC_ACCOUNTING_INFORMATION, whose class is 1.
type accounting struct {
	_                                [4]int64 // times
	pageFaults, total, active, ended uint32
}

// Countable returns nil.
func Countable() error { return nil }

// Count returns the number of processes in the job of p. It must not run beside Reap of p.
func (s *Set) Count(p *Process) (int, error) {
	const class = 1
	var a accounting
	err := windows.QueryInformationJobObject(p.job, class, uintptr(unsafe.Pointer(&a)),
		uint32(unsafe.Sizeof(a)), nil)
	return int(a.active), os.NewSyscallError("QueryInformationJobObject", err)
}

// Interrupt sends CTRL+BREAK to p: a group has no CTRL+C. It must not run beside Reap of p.
func (p *Process) Interrupt() {
	_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p.os.Pid))
}

// StopAll stops all processes of the set as Stop stops one. No command may be started afterwards.
func (s *Set) StopAll() error {
	s.mu.Lock()
	leaders := slices.Collect(maps.Keys(s.running))
	s.mu.Unlock()
	interrupt(leaders, env.GraceTime)
	for _, p := range leaders {
		p.killed = true
	}
	return s.Kill()
}

// interrupt sends CTRL+BREAK to leaders and waits for their exits, at most for grace.
func interrupt(leaders []*Process, grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for _, p := range leaders {
		_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p.os.Pid))
	}
	for _, p := range leaders {
		select {
		case <-p.Exited:
		case <-timer.C:
			timer.Reset(0)
		}
	}
}

// Kill kills all processes of the set, without any grace.
func (s *Set) Kill() error {
	return os.NewSyscallError("TerminateJobObject", windows.TerminateJobObject(s.all, killedCode))
}

// Signal returns errors.ErrUnsupported: Windows has no signals, only Kill.
func (s *Set) Signal(sig os.Signal) error {
	return fmt.Errorf("signal %v: %w", sig, errors.ErrUnsupported)
}

// Close releases the job objects, which kills the processes that are left.
func (s *Set) Close() error { return windows.CloseHandle(s.all) }

// Guarantees returns the guarantees env.KillTree, env.CleanClose and env.CleanCrash.
func (s *Set) Guarantees() []env.Guarantee {
	const outside = "a job object; a process that another service starts for a command escapes"
	return []env.Guarantee{
		{Name: env.KillTree, Strength: env.BestEffort, By: outside},
		{Name: env.CleanClose, Strength: env.BestEffort, By: outside},
		{
			Name: env.CleanCrash, Strength: env.BestEffort,
			By: "a job object that the system closes with this process",
		},
	}
}
