package proctree

// MarkerPrefix is the prefix of the names of all marker variables.
const MarkerPrefix = "SANDBOXAGENT_EXEC_"
