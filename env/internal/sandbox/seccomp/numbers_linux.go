package seccomp

import "golang.org/x/sys/unix"

// abi is a kind of program that the kernel runs.
type abi struct {
	arch uint32
	// column is the column of its call numbers.
	column int
	// limit, if set, is the first number that belongs to another ABI, which is refused.
	limit uint32
}

// Columns of the table of numbers.
const (
	columnAMD64 = iota
	column386
	columnARM64
	columnARM
	columns
)

// abis returns the ABIs of an architecture. Calls of x32 have a bit set in their numbers.
func abis(goarch string) []abi {
	switch goarch {
	case "amd64":
		return []abi{
			{unix.AUDIT_ARCH_X86_64, columnAMD64, 0x40000000},
			{unix.AUDIT_ARCH_I386, column386, 0},
		}
	case "arm64":
		return []abi{{unix.AUDIT_ARCH_AARCH64, columnARM64, 0}, {unix.AUDIT_ARCH_ARM, columnARM, 0}}
	}
	return nil
}

// none marks a call that an ABI does not have.
const none = -1

// numbers are the numbers of system calls in the kernel's tables.
var numbers = [...]struct {
	call string
	of   [columns]int16
}{
	{"add_key", [...]int16{248, 286, 217, 309}},
	{"bpf", [...]int16{321, 357, 280, 386}},
	{"chmod", [...]int16{90, 15, none, 15}},
	{"clone", [...]int16{56, 120, 220, 120}},
	{"clone3", [...]int16{435, 435, 435, 435}},
	{"creat", [...]int16{85, 8, none, 8}},
	{"delete_module", [...]int16{176, 129, 106, 129}},
	{"fchmod", [...]int16{91, 94, 52, 94}},
	{"fchmodat", [...]int16{268, 306, 53, 333}},
	{"fchmodat2", [...]int16{452, 452, 452, 452}},
	{"fcntl", [...]int16{72, 55, 25, 55}},
	{"fcntl64", [...]int16{none, 221, none, 221}},
	{"finit_module", [...]int16{313, 350, 273, 379}},
	{"fsconfig", [...]int16{431, 431, 431, 431}},
	{"fsmount", [...]int16{432, 432, 432, 432}},
	{"fsopen", [...]int16{430, 430, 430, 430}},
	{"fspick", [...]int16{433, 433, 433, 433}},
	{"init_module", [...]int16{175, 128, 105, 128}},
	{"io_uring_enter", [...]int16{426, 426, 426, 426}},
	{"io_uring_register", [...]int16{427, 427, 427, 427}},
	{"io_uring_setup", [...]int16{425, 425, 425, 425}},
	{"ioctl", [...]int16{16, 54, 29, 54}},
	{"ioprio_set", [...]int16{251, 289, 30, 314}},
	{"kexec_file_load", [...]int16{320, none, 294, 401}},
	{"kexec_load", [...]int16{246, 283, 104, 347}},
	{"keyctl", [...]int16{250, 288, 219, 311}},
	{"kill", [...]int16{62, 37, 129, 37}},
	{"landlock_create_ruleset", [...]int16{444, 444, 444, 444}},
	{"mkdir", [...]int16{83, 39, none, 39}},
	{"mkdirat", [...]int16{258, 296, 34, 323}},
	{"mknod", [...]int16{133, 14, none, 14}},
	{"mknodat", [...]int16{259, 297, 33, 324}},
	{"mount", [...]int16{165, 21, 40, 21}},
	{"mount_setattr", [...]int16{442, 442, 442, 442}},
	{"move_mount", [...]int16{429, 429, 429, 429}},
	{"open", [...]int16{2, 5, none, 5}},
	{"open_by_handle_at", [...]int16{304, 342, 265, 371}},
	{"open_tree", [...]int16{428, 428, 428, 428}},
	{"open_tree_attr", [...]int16{467, 467, 467, 467}},
	{"openat", [...]int16{257, 295, 56, 322}},
	{"openat2", [...]int16{437, 437, 437, 437}},
	{"perf_event_open", [...]int16{298, 336, 241, 364}},
	{"pidfd_send_signal", [...]int16{424, 424, 424, 424}},
	{"pivot_root", [...]int16{155, 217, 41, 218}},
	{"prlimit64", [...]int16{302, 340, 261, 369}},
	{"request_key", [...]int16{249, 287, 218, 310}},
	{"rt_sigqueueinfo", [...]int16{129, 178, 138, 178}},
	{"rt_tgsigqueueinfo", [...]int16{297, 335, 240, 363}},
	{"sched_setattr", [...]int16{314, 351, 274, 380}},
	{"sched_setparam", [...]int16{142, 154, 118, 154}},
	{"sched_setscheduler", [...]int16{144, 156, 119, 156}},
	{"setns", [...]int16{308, 346, 268, 375}},
	{"setpriority", [...]int16{141, 97, 140, 97}},
	{"socket", [...]int16{41, 359, 198, 281}},
	{"socketcall", [...]int16{none, 102, none, none}},
	{"socketpair", [...]int16{53, 360, 199, 288}},
	{"umount", [...]int16{none, 22, none, none}},
	{"umount2", [...]int16{166, 52, 39, 52}},
	{"unshare", [...]int16{272, 310, 97, 337}},
	{"userfaultfd", [...]int16{323, 374, 282, 388}},
}

// numbersOf returns the numbers of a call.
func numbersOf(call string) (row [columns]int16, ok bool) {
	for _, n := range numbers {
		if n.call == call {
			return n.of, true
		}
	}
	return row, false
}
