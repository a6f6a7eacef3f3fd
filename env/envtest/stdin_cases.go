package envtest

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing/iotest"

	"github.com/sandboxagent/sandboxagent/env"
)

func execStdin(c *caseT) {
	for what, input := range map[string]string{
		"an empty reader": "",
		"text":            "one\ntwo\n",
		"no newline":      "text",
		"shell text":      "$HOME `id` $(id) \"quoted\" 'single' \\ back\\slash $$ * ~ ! #\n",
		"bytes":           allBytes + "\xff\xfe\xc3\x28\x00\r\n",
		"unicode":         "café résumé €100 中文 😀\n",
		"no end of text":  "a\x04b\x1ac\n",
	} {
		cmd := c.script("cat")
		cmd.Stdin = iotest.OneByteReader(strings.NewReader(input))
		r := c.exec(cmd)
		c.wantExit(what, r, 0)
		c.equal(what+" through cat", r.stdout, input)
	}
	cmd := c.script(`cat >"$1"`, c.abs("copy"))
	cmd.Stdin = strings.NewReader(allBytes)
	c.wantExit("cat into a file", c.exec(cmd), 0)
	c.equal("bytes through cat into a file", c.read(c.name("copy")), allBytes)
}

func execStdinEmpty(c *caseT) {
	r := c.exec(c.script("cat; echo end"))
	c.equal("cat without Stdin", r.stdout, "end\n")
	c.equal("the read of a shell without Stdin",
		c.exec(c.script(`read -r line || echo "end $line"`)).stdout, "end \n")
}

func execStdinLarge(c *caseT) {
	n := int64(c.size(50<<20, 4<<20))
	source := rand.NewChaCha8([32]byte{1})
	sent, received := sha256.New(), sha256.New()
	cmd := c.script("cat")
	cmd.Stdin = io.TeeReader(io.LimitReader(source, n), sent)
	cmd.Stdout = received
	c.wantExit("cat", c.exec(cmd), 0)
	c.equal(fmt.Sprintf("the hash of %d bytes through cat", n), fmt.Sprintf("%x", received.Sum(nil)),
		fmt.Sprintf("%x", sent.Sum(nil)))
}

func execStdinUnread(c *caseT) {
	for text, code := range map[string]int{
		"exit 0": 0, "exit 3": 3, "read -r line; exit 4": 4,
		"exec <&-; exit 5": 5,
	} {
		cmd := c.script(text)
		cmd.Stdin = strings.NewReader(strings.Repeat("line\n", 1<<20))
		c.wantExit(text, c.exec(cmd), code)
	}
}

func execStdinBlocks(c *caseT) {
	r, w := io.Pipe()
	c.cleanup(func() { _ = w.Close() })
	cmd := c.script("echo out; exit 3")
	cmd.Stdin = r
	var result ran
	c.within("Exec with a reader that blocks after the command has exited",
		func() { result = c.exec(cmd) })
	c.wantExit("a command with a reader that blocks", result, 3)
	c.equal("its output", result.stdout, "out\n")

	// A reader that gives its data late, to a command that waits for it.
	r2, w2 := io.Pipe()
	go func() {
		for _, line := range []string{"one\n", "two\n"} {
			_, _ = io.WriteString(w2, line)
		}
		_ = w2.Close()
	}()
	cmd = env.Command{Argv: c.script(`while read -r line; do echo "got $line"; done`).Argv, Stdin: r2}
	c.equal("a command that reads line by line", c.exec(cmd).stdout, "got one\ngot two\n")
}
