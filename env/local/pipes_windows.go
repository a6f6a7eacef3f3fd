package local

import "os"

// pending returns how many bytes stand in a pipe. Reads of pipes have no deadlines here, so that nobody asks.
func pending(*os.File) int { return 0 }
