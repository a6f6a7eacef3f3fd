package sandboxd

import "golang.org/x/sys/unix"

// abis are programs for amd64 and i386. Calls of the x32 kind have a bit in their numbers.
func abis() []abi {
	return []abi{
		{arch: unix.AUDIT_ARCH_X86_64, limit: 0x40000000, numbers: [calls]uint32{
			callPrlimit: 302, callSetpriority: 141, callSetparam: 142, callSetscheduler: 144, callSetattr: 314,
			callIoprioSet: 251, callSigqueue: 129, callTgsigqueue: 297, callPidfdSignal: 424, callFcntl: 72,
		}},
		{arch: unix.AUDIT_ARCH_I386, numbers: [calls]uint32{
			callPrlimit: 340, callSetpriority: 97, callSetparam: 154, callSetscheduler: 156, callSetattr: 351,
			callIoprioSet: 289, callSigqueue: 178, callTgsigqueue: 335, callPidfdSignal: 424, callFcntl: 55, callFcntl64: 221,
		}},
	}
}
