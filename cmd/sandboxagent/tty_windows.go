package main

import "os"

// terminalName is the name of the terminal that the program was started from.
const terminalName = "CONIN$"

// terminalScreen is where questions are written.
const terminalScreen = "CONOUT$"

// watchTerminal returns a channel that receives nothing: a console here does not tell of a new
// size.
func watchTerminal(<-chan struct{}, func()) (changed <-chan os.Signal) { return nil }
