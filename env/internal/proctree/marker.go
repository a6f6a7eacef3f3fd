package proctree

// MarkerPrefix begins the names of all marker variables.
const MarkerPrefix = "SANDBOXAGENT_EXEC_"
