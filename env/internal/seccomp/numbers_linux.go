package seccomp

import "golang.org/x/sys/unix"

// abi is a kind of program that the kernel runs.
type abi struct {
	arch uint32
	// column is that of its numbers.
	column int
	// limit, if set, is a number from which on calls belong to another kind of program, which is refused.
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

// abis returns the kinds of programs that an architecture runs. Calls of the x32 kind have a bit in their numbers.
func abis(goarch string) []abi {
	switch goarch {
	case "amd64":
		return []abi{{unix.AUDIT_ARCH_X86_64, columnAMD64, 0x40000000}, {unix.AUDIT_ARCH_I386, column386, 0}}
	case "arm64":
		return []abi{{unix.AUDIT_ARCH_AARCH64, columnARM64, 0}, {unix.AUDIT_ARCH_ARM, columnARM, 0}}
	}
	return nil
}

// none stands for a call that a kind of program does not have.
const none = -1

// numbers returns the numbers of system calls, from the kernel's tables.
func numbers() map[string][columns]int {
	return map[string][columns]int{
		"add_key":                 {248, 286, 217, 309},
		"bpf":                     {321, 357, 280, 386},
		"clone":                   {56, 120, 220, 120},
		"clone3":                  {435, 435, 435, 435},
		"delete_module":           {176, 129, 106, 129},
		"fcntl":                   {72, 55, 25, 55},
		"fcntl64":                 {none, 221, none, 221},
		"finit_module":            {313, 350, 273, 379},
		"fsconfig":                {431, 431, 431, 431},
		"fsmount":                 {432, 432, 432, 432},
		"fsopen":                  {430, 430, 430, 430},
		"fspick":                  {433, 433, 433, 433},
		"init_module":             {175, 128, 105, 128},
		"io_uring_enter":          {426, 426, 426, 426},
		"io_uring_register":       {427, 427, 427, 427},
		"io_uring_setup":          {425, 425, 425, 425},
		"ioctl":                   {16, 54, 29, 54},
		"ioprio_set":              {251, 289, 30, 314},
		"kexec_file_load":         {320, none, 294, 401},
		"kexec_load":              {246, 283, 104, 347},
		"keyctl":                  {250, 288, 219, 311},
		"landlock_create_ruleset": {444, 444, 444, 444},
		"mount":                   {165, 21, 40, 21},
		"mount_setattr":           {442, 442, 442, 442},
		"move_mount":              {429, 429, 429, 429},
		"open_by_handle_at":       {304, 342, 265, 371},
		"open_tree":               {428, 428, 428, 428},
		"open_tree_attr":          {467, 467, 467, 467},
		"perf_event_open":         {298, 336, 241, 364},
		"pidfd_send_signal":       {424, 424, 424, 424},
		"pivot_root":              {155, 217, 41, 218},
		"prlimit64":               {302, 340, 261, 369},
		"request_key":             {249, 287, 218, 310},
		"rt_sigqueueinfo":         {129, 178, 138, 178},
		"rt_tgsigqueueinfo":       {297, 335, 240, 363},
		"sched_setattr":           {314, 351, 274, 380},
		"sched_setparam":          {142, 154, 118, 154},
		"sched_setscheduler":      {144, 156, 119, 156},
		"setns":                   {308, 346, 268, 375},
		"setpriority":             {141, 97, 140, 97},
		"socket":                  {41, 359, 198, 281},
		"socketcall":              {none, 102, none, none},
		"umount":                  {none, 22, none, none},
		"umount2":                 {166, 52, 39, 52},
		"unshare":                 {272, 310, 97, 337},
		"userfaultfd":             {323, 374, 282, 388},
	}
}
