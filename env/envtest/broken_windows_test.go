package envtest

// brokenProcesses would need groups and signals.
func brokenProcesses() []breakage { return nil }
