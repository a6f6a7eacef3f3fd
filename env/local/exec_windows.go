package local

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"

	"github.com/sandboxagent/sandboxagent/env"
)

// killedCode is the exit code of processes that are killed, so that it reads as 128+SIGKILL.
const killedCode = 137

// process is a command that was started, in a job of its own.
type process struct {
	os      *os.Process
	job     windows.Handle
	started time.Time
	exited  chan struct{} // closed when it has exited
	elapsed time.Duration // valid once exited is closed
	state   *os.ProcessState
	err     error
	killed  bool // its job was terminated
}

// jobs is the job that holds all processes of an environment. The system kills them when its last handle is closed, also
// when this process dies.
type jobs struct{ all windows.Handle }

func newJobs() (jobs, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return jobs{}, os.NewSyscallError("CreateJobObject", err)
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		_ = windows.CloseHandle(job)
		return jobs{}, os.NewSyscallError("SetInformationJobObject", err)
	}
	return jobs{all: job}, nil
}

func (j jobs) close() error { return windows.CloseHandle(j.all) }

// startProcess starts file suspended, puts it into its jobs and lets it run.
func (e *Environment) startProcess(file string, argv []string, attr *os.ProcAttr, _ string) (*process, error) {
	attr.Sys = &syscall.SysProcAttr{
		CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP,
	}
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, os.NewSyscallError("CreateJobObject", err)
	}
	started := time.Now()
	child, err := os.StartProcess(file, argv, attr)
	if err != nil {
		_ = windows.CloseHandle(job)
		return nil, err
	}
	if err := release(child, e.jobs.all, job); err != nil {
		err = errors.Join(err, child.Kill())
		_, _ = child.Wait()
		_ = windows.CloseHandle(job)
		return nil, err
	}
	p := &process{os: child, job: job, started: started, exited: make(chan struct{})}
	go func() {
		p.state, p.err = child.Wait()
		p.elapsed = time.Since(p.started)
		close(p.exited)
	}()
	return p, nil
}

// release assigns a suspended process to jobs, the outer one first, and resumes it.
func release(child *os.Process, jobs ...windows.Handle) error {
	const access = windows.PROCESS_SET_QUOTA | windows.PROCESS_TERMINATE | windows.PROCESS_SUSPEND_RESUME
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

// reap returns the exit status.
func (p *process) reap() (code int, signal string, err error) {
	_ = windows.CloseHandle(p.job)
	if p.err != nil {
		return 0, "", p.err
	}
	if p.killed && p.state.ExitCode() == killedCode {
		signal = "SIGKILL"
	}
	return p.state.ExitCode(), signal, nil
}

// terminate ends the tree of p: first it asks as a console would, and after the grace it kills the job.
func (e *Environment) terminate(p *process) error {
	if windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p.os.Pid)) == nil {
		timer := time.NewTimer(env.GraceTime)
		defer timer.Stop()
		select {
		case <-p.exited:
		case <-timer.C:
		}
	}
	p.killed = true
	return os.NewSyscallError("TerminateJobObject", windows.TerminateJobObject(p.job, killedCode))
}

// terminateAll ends everything that the environment started.
func (e *Environment) terminateAll(leaders []*process) error {
	for _, p := range leaders {
		_ = windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(p.os.Pid))
	}
	timer := time.NewTimer(env.GraceTime)
	defer timer.Stop()
	for _, p := range leaders {
		select {
		case <-p.exited:
		case <-timer.C:
			timer.Reset(0)
		}
	}
	for _, p := range leaders {
		p.killed = true
	}
	return os.NewSyscallError("TerminateJobObject", windows.TerminateJobObject(e.jobs.all, killedCode))
}
