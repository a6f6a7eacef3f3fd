package envtest

import "slices"

// suite returns all cases.
func suite() []group {
	return []group{
		{"exec", execCases()},
		{"stream", streamCases()},
		{"background", backgroundCases()},
		{"kill", killCases()},
		{"tty", ttyCases()},
		{"confine", confineCases()},
		{"file", fileCases()},
		{"write", writeCases()},
		{"remove", removeCases()},
		{"copy", copyCases()},
		{"search", slices.Concat(searchCases(), grepCases(), cancelCases())},
		{"readfiles", readFilesCases()},
		{"info", infoCases()},
		{"life", lifeCases()},
	}
}
