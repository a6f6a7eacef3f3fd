package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sandboxagent/sandboxagent/runtime/llm"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

const (
	// maxInput bounds each text that goes with a task, in bytes. It would already exceed the context
	// of most models.
	maxInput = 1 << 20
	// maxImage bounds an image, as the tool read_file does. Some providers accept no larger one.
	maxImage = 5 << 20
	// inputWait bounds the wait for the first data of a pipe on standard input. Services start
	// programs with pipes that nobody writes or closes.
	inputWait = 3 * time.Second
)

// fromStdin is the argument for standard input.
const fromStdin = "-"

const stdinName = "standard input"

func attachFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{
			Name: "file", EnvVars: variable("file"),
			Usage: "send the text `FILE` with the task, or with - standard input; may be repeated",
		},
		&cli.StringSliceFlag{
			Name: "image-file", EnvVars: variable("image-file"),
			Usage: "send the image `FILE` (PNG, JPEG, GIF, WebP) with the task; may be repeated",
		},
	}
}

// attachments reads what goes with the task: standard input, unless it is a terminal or the task
// itself, and the files of attachFlags.
func (p *program) attachments(ctx context.Context, c *cli.Context) (parts []llm.Part, err error) {
	files := c.StringSlice("file")
	isTask := c.Args().First() == fromStdin
	if n := countOf(files, fromStdin); n > 1 || n == 1 && isTask {
		return nil, usagef("--file - reads standard input, which can be read only once")
	} else if n == 0 && !isTask {
		data, err := p.pipedInput(ctx)
		if err != nil {
			return nil, inputError(ctx, stdinName, err)
		}
		if len(data) > 0 {
			parts = append(parts, dataPart(stdinName, data))
			p.notify(fmt.Sprintf("%d bytes of standard input go with the task", len(data)))
		}
	}
	for _, name := range files {
		source := fmt.Sprintf("the file %q", name)
		var data []byte
		if name == fromStdin {
			source = stdinName
			data, err = readText(ctx, p.std.in)
		} else {
			data, err = readNamed(name, func(in io.Reader) ([]byte, error) { return readText(ctx, in) })
		}
		if err != nil {
			return nil, inputError(ctx, "--file "+name, err)
		}
		parts = append(parts, dataPart(source, data))
	}
	for _, name := range c.StringSlice("image-file") {
		data, err := readNamed(name, func(in io.Reader) ([]byte, error) {
			return readAll(ctx, in, maxImage)
		})
		mime := http.DetectContentType(data)
		if err == nil && !slices.Contains(imageTypes, mime) {
			err = errors.New("it is no PNG, JPEG, GIF or WebP image")
		}
		if err != nil {
			return nil, inputError(ctx, "--image-file "+name, err)
		}
		parts = append(parts, llm.Part{Kind: llm.PartImage, Image: &llm.Image{MIME: mime, Data: data}})
	}
	return parts, nil
}

// imageTypes are the types of images that all providers accept.
var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

func countOf(list []string, text string) (n int) {
	for _, s := range list {
		if s == text {
			n++
		}
	}
	return n
}

// dataPart makes the part of a message with a text from source.
func dataPart(source string, data []byte) llm.Part {
	text := strings.ToValidUTF8(string(data), "\uFFFD")
	return llm.Text("\n\n" + tool.DataText(source, text))
}

// inputError makes a usageError of a failure to read, unless the run has timed out.
func inputError(ctx context.Context, what string, err error) error {
	if timedOut(ctx) {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	return usagef("%s: %s", what, err)
}

// readNamed reads a file of the host.
func readNamed(name string, read func(io.Reader) ([]byte, error)) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	return read(f)
}

// readText reads a text to its end.
func readText(ctx context.Context, in io.Reader) ([]byte, error) {
	data, err := readAll(ctx, in, maxInput)
	switch {
	case errors.Is(err, errTooLong):
		err = fmt.Errorf("%w (put it into a file that the model can read in parts)", err)
	case err == nil && slices.Contains(data, 0):
		err = errors.New("it is no text (it has NUL bytes)")
	}
	return data, err
}

// pipedInput reads standard input to its end if it is a regular file, or a pipe or a socket that
// ends or has data within inputWait.
func (p *program) pipedInput(ctx context.Context) ([]byte, error) {
	f, ok := p.std.in.(*os.File)
	if !ok {
		return nil, nil
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() && info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) == 0 {
		return nil, nil //nolint:nilerror // a closed one has no data
	}
	in := bufio.NewReader(f)
	ready := make(chan struct{})
	go func() { // it stays while the pipe is open and silent
		defer close(ready)
		_, _ = in.Peek(1) // the next read has the error
	}()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(inputWait):
		p.notify(fmt.Sprintf("standard input is ignored: it is open, but had no data for %s (--file - "+
			"waits for its end, </dev/null closes it)", inputWait))
		return nil, nil
	case <-ready:
	}
	waiting := time.AfterFunc(inputWait, func() { p.notify("waiting for the end of standard input") })
	defer waiting.Stop()
	return readText(ctx, in)
}
