package envtest

// suite returns all cases.
func suite() []group {
	return []group{
		{"exec", execCases()},
		{"stream", streamCases()},
		{"background", backgroundCases()},
		{"kill", killCases()},
		{"file", fileCases()},
		{"write", writeCases()},
		{"remove", removeCases()},
		{"copy", copyCases()},
		{"search", searchCases()},
		{"info", infoCases()},
		{"life", lifeCases()},
	}
}
