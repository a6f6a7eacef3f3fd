package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/sandboxagent/sandboxagent/env"
	"github.com/sandboxagent/sandboxagent/runtime/event"
)

// maxProgress bounds the file of Config.ProgressFile, in bytes.
const maxProgress = 1 << 20

// noteProgress adds a line for each failure to the file that Config.ProgressFile names, unless the
// run must not change files. A failure to do so is a warning, once a run.
func (l *loop) noteProgress(ctx context.Context, failures []event.Failure) {
	if l.progressFile == "" || l.env == nil || len(failures) == 0 || l.mode.isPlanning() {
		return
	}
	var b strings.Builder
	for _, f := range failures {
		what := strings.TrimSpace(f.Tool + " " + f.Kind)
		b.WriteString("- " + f.Time.UTC().Format(time.RFC3339) + " " + what + ": " + f.Learning + "\n")
	}
	if err := l.appendFile(ctx, l.progressFile, b.String()); err != nil {
		l.send(event.Warning{Code: "progress_file", Message: "no progress is noted: " + err.Error()})
		l.progressFile = ""
	}
}

// maxConflicts bounds the attempts to write a file that others write, too.
const maxConflicts = 10

// appendFile adds text to a file of the environment, without the loss of what others add meanwhile.
func (l *loop) appendFile(ctx context.Context, name, text string) error {
	defer l.scope.Cache.Changing()()
	e := l.env
	if l.progressEnv != nil {
		e = l.progressEnv
	}
	for try := 1; ; try++ {
		before, err := env.ReadFile(ctx, e, name, maxProgress)
		sum := sha256.Sum256(before)
		o := env.WriteOptions{IfSHA256: hex.EncodeToString(sum[:])}
		if errors.Is(err, fs.ErrNotExist) {
			o, err = env.WriteOptions{MustNotExist: true}, nil
		}
		if err != nil {
			return err
		}
		_, err = e.WriteFile(ctx, name, strings.NewReader(string(before)+text), o)
		conflict := errors.Is(err, env.ErrChanged) || errors.Is(err, fs.ErrExist)
		if !conflict || try == maxConflicts {
			return err
		}
	}
}
