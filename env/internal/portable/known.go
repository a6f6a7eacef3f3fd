package portable

// Known returns the cases of package envtest that differ, with the reasons.
func Known() map[string]string {
	return map[string]string{
		"exec/signal_of_its_own":   "a shell does not tell a death by SIGPIPE from the exit code 141",
		"exec/interpreter_missing": "sh runs a text without interpreter line itself",
	}
}
