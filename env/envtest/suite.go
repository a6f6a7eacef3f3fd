package envtest

// suite returns all cases.
func suite() []group {
	return []group{
		{"exec", execCases()},
		{"stream", streamCases()},
		{"background", backgroundCases()},
		{"kill", killCases()},
		{"tty", ttyCases()},
		{"file", fileCases()},
		{"write", writeCases()},
		{"remove", removeCases()},
		{"copy", copyCases()},
		{"search", searchCases()},
		{"readfiles", readFilesCases()},
		{"info", infoCases()},
		{"life", lifeCases()},
	}
}
