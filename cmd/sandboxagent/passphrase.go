package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/term"
)

// passphrasePrompt returns a function that reads the passphrase of a key file from the terminal;
// nil if the program has no terminal.
func passphrasePrompt() func(ctx context.Context, file string) ([]byte, error) {
	tty, err := os.OpenFile(terminalName, os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	_ = tty.Close() // each prompt opens it again
	return promptPassphrase
}

func promptPassphrase(ctx context.Context, file string) ([]byte, error) {
	tty, err := os.OpenFile(terminalName, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	fd := int(tty.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return nil, errors.Join(err, tty.Close())
	}
	screen, err := os.OpenFile(terminalScreen, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, tty.Close())
	}
	fmt.Fprintf(screen, "Passphrase of the key %s: ", oneLine(file))
	type answer struct {
		text []byte
		err  error
	}
	read := make(chan answer, 1)
	go func() {
		text, err := term.ReadPassword(fd)
		_, _ = fmt.Fprintln(screen)
		read <- answer{text, errors.Join(err, tty.Close(), screen.Close())}
	}()
	select {
	case <-ctx.Done():
		_ = term.Restore(fd, before) // the goroutine keeps the terminal until a key is pressed
		return nil, context.Cause(ctx)
	case a := <-read:
		return a.text, a.err
	}
}
