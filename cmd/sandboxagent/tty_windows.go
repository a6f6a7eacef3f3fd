package main

import "os"

// terminalName is the console of the program.
const terminalName = "CONIN$"

// terminalScreen is the output for questions.
const terminalScreen = "CONOUT$"

// watchTerminal returns a channel that receives nothing: consoles do not report a new size.
func watchTerminal(<-chan struct{}, func()) (changed <-chan os.Signal) { return nil }
