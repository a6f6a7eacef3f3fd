package local

// nonBlocking has no effect on Windows.
const nonBlocking = 0

// directoryFlag has no effect on Windows.
const directoryFlag = 0
