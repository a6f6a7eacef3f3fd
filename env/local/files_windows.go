package local

// nonBlocking has no meaning here.
const nonBlocking = 0
