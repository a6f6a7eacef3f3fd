package sandboxd

import "golang.org/x/sys/unix"

// abis are programs for arm64 and arm.
func abis() []abi {
	return []abi{
		{arch: unix.AUDIT_ARCH_AARCH64, numbers: [calls]uint32{
			callPrlimit: 261, callSetpriority: 140, callSetparam: 118, callSetscheduler: 119, callSetattr: 274,
			callIoprioSet: 30, callSigqueue: 138, callTgsigqueue: 240, callPidfdSignal: 424, callFcntl: 25,
		}},
		{arch: unix.AUDIT_ARCH_ARM, numbers: [calls]uint32{
			callPrlimit: 369, callSetpriority: 97, callSetparam: 154, callSetscheduler: 156, callSetattr: 380,
			callIoprioSet: 314, callSigqueue: 178, callTgsigqueue: 363, callPidfdSignal: 424, callFcntl: 55, callFcntl64: 221,
		}},
	}
}
