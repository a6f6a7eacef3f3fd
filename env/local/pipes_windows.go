package local

import "os"

// pending returns how many bytes stand in a pipe. Reads of pipes have no deadlines here, so that
// nobody asks.
func pending(*os.File) int { return 0 }

// readNow reads what stands in a pipe now, which nobody can tell here.
func readNow(*os.File, []byte) (int, error) { return 0, os.ErrDeadlineExceeded }
