package batch

import (
	"cmp"
	"encoding/xml"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sandboxagent/sandboxagent/runtime/agent"
	"github.com/sandboxagent/sandboxagent/runtime/tool"
)

// maxJUnitText bounds the text of a failure, in bytes.
const maxJUnitText = 8 << 10

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     float64     `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Time    float64       `xml:"time,attr"`
	Failure *junitProblem `xml:"failure,omitempty"`
	Error   *junitProblem `xml:"error,omitempty"`
	Skipped *struct{}     `xml:"skipped,omitempty"`
}

type junitProblem struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the results of the batch in dir as JUnit's XML, as one suite of that name with
// a case for each task, in the order of the tasks. A task that the agent did not do is a failure,
// one that its environment, its model or its settings prevented is an error, and one without a
// result is skipped.
func WriteJUnit(w io.Writer, name, dir string) error {
	tasks, err := Tasks(dir)
	if err != nil {
		return err
	}
	cases := make(map[string]junitCase)
	for r, err := range Results(dir) {
		if err != nil {
			return err
		}
		cases[r.TaskID] = caseOf(r)
	}
	s := junitSuite{Name: name, Tests: len(tasks)}
	for _, t := range tasks {
		c, ok := cases[t.ID]
		if !ok {
			c.Skipped = new(struct{})
			s.Skipped++
		}
		if c.Failure != nil {
			s.Failures++
		}
		if c.Error != nil {
			s.Errors++
		}
		c.Class, c.Name = name, t.ID
		s.Time += c.Time
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(s); err != nil {
		return err
	}
	_, err = io.WriteString(w, "\n")
	return err
}

// failures are the statuses of tasks that an agent has tried and not done.
var failures = []agent.Status{
	agent.StatusTaskFailed, agent.StatusVerifyFailed, agent.StatusRepeatedFailures,
	agent.StatusTimedOut, agent.StatusGaveUpTime, agent.StatusLimit, agent.StatusAwaitingHuman,
}

func caseOf(r *Record) junitCase {
	c := junitCase{Time: r.Ended.Sub(r.Started).Seconds()}
	if r.Passed() {
		return c
	}
	text := tool.Sanitize(strings.TrimSpace(r.Error + "\n" + r.Text))
	if len(text) > maxJUnitText {
		text = text[:maxJUnitText]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
	}
	first, _, _ := strings.Cut(text, "\n")
	problem := &junitProblem{Message: cmp.Or(first, r.Status), Type: r.Status, Text: text}
	if slices.Contains(failures, agent.Status(r.Status)) {
		c.Failure = problem
	} else {
		c.Error = problem
	}
	return c
}
