package local

// newExclusiveJobs is newJobs: a job needs no process of its own.
func newExclusiveJobs() (jobs, error) { return newJobs() }

// tagged reports whether commands need no marker variable.
func (jobs) tagged() bool { return false }
