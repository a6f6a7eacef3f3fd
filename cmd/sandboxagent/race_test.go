//go:build race

package main

// raceEnabled says that memory is watched, which takes memory.
const raceEnabled = true
