package local

// nonBlocking has no meaning here.
const nonBlocking = 0

// directoryFlag has no meaning here.
const directoryFlag = 0
