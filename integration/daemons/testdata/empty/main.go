// Command probe is the only file of an image that has no shell: it prints what it was given,
// sleeps, or exits.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

func main() {
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"sleep", "24h"}
	}
	switch args[0] {
	case "args":
		for _, arg := range args[1:] {
			fmt.Printf("%q\n", arg)
		}
	case "vars":
		for _, v := range os.Environ() {
			fmt.Println(v)
		}
	case "id":
		fmt.Println(os.Getuid(), os.Getgid(), runtime.GOOS+"/"+runtime.GOARCH)
	case "exit":
		code, _ := strconv.Atoi(args[1])
		os.Exit(code)
	case "sleep":
		d, err := time.ParseDuration(args[1])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
		select {
		case <-time.After(d):
		case <-stop:
			os.Exit(143)
		}
	default:
		fmt.Fprintf(os.Stderr, "probe: unknown command %q (known: args, vars, id, exit CODE, sleep DURATION)\n",
			args[0])
		os.Exit(2)
	}
}
