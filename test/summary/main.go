// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Command summary runs the test suites of the Makefile, shows what they say, and closes with one line over all of them:
// N passed, N failed, N skipped.
//
//	summary -- make [ARG…] -- SUITE… [-- SUITE… [-- SUITE…]]
//
// Those of the first list have the machine to themselves, one after the other. Those of the second run side by side, and
// meanwhile those of the third, one after the other, in what these leave of the processors. What has others beside it is
// shown when it ended.
//
// A suite is a make target. Go's suites are read as test2json events; others count themselves in
// lines of the closing form. A suite that counts nothing counts as one test by its exit status.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

type tally struct {
	passed, failed, skipped int
	failures, skips         []string
}

func (t *tally) add(one tally) {
	t.passed += one.passed
	t.failed += one.failed
	t.skipped += one.skipped
	t.failures = append(t.failures, one.failures...)
	t.skips = append(t.skips, one.skips...)
}

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	lists := split(args)
	if len(lists) < 2 || len(lists) > 4 || len(lists[0]) == 0 {
		fmt.Fprintln(os.Stderr, "usage: summary -- make [ARG…] -- SUITE… [-- SUITE… [-- SUITE…]]")
		os.Exit(2)
	}
	lists = append(lists, nil, nil)
	r := runner{command: lists[0], out: os.Stdout}
	for _, suite := range lists[1] {
		r.alone(suite)
	}
	r.beside(lists[2], lists[3])
	total := r.total
	for _, skip := range total.skips {
		fmt.Println("skipped:", skip)
	}
	for _, failure := range total.failures {
		fmt.Println("failed:", failure)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", total.passed, total.failed, total.skipped)
	if total.failed > 0 {
		os.Exit(1)
	}
}

// split divides arguments at each "--".
func split(args []string) (lists [][]string) {
	for {
		at := slices.Index(args, "--")
		if at < 0 {
			return append(lists, args)
		}
		lists = append(lists, args[:at:at])
		args = args[at+1:]
	}
}

// run runs a suite and writes what it says to out.
func run(argv []string, suite string, out io.Writer) tally {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "GOTESTFLAGS=-json")
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	reader := reader{suite: suite, out: out, output: map[string][]string{}}
	if err := cmd.Start(); err != nil {
		return tally{failed: 1, failures: []string{suite + ": " + err.Error()}}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewReader(read)
		for {
			line, err := lines.ReadString('\n')
			if line != "" {
				reader.line(strings.TrimSuffix(line, "\n"))
			}
			if err != nil {
				return
			}
		}
	}()
	err := cmd.Wait()
	write.Close()
	<-done
	got := reader.tally
	switch {
	case err != nil && got.failed == 0:
		got.failed++
		got.failures = append(got.failures, fmt.Sprintf("%s: %v", suite, err))
	case err == nil && got.passed+got.failed+got.skipped == 0:
		got.passed++
	}
	return got
}

// event is a line of `go test -json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
	FailedBuild                               string
}

type reader struct {
	tally
	suite  string
	out    io.Writer
	named  int                 // skips since the last line of counts
	told   int                 // failures named since then
	said   []string            // what came since a test ended: a failure is told with it
	why    string              // a reason that is told before its test's name
	output map[string][]string // of tests that run
}

var counts = regexp.MustCompile(`^\s*(?:\S+: )?(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\.?$`)

var skip = regexp.MustCompile(`^\s*(?:SKIP|skip)\b[: ]*(.*)$`)

var ended = regexp.MustCompile(`^\s*(PASS|ok|FAIL|SKIP|skip)\b[: ]*(.*)$`)

// ended names a test that failed, with what was said before: a log may be kept from its end only.
func (r *reader) ended(line string) {
	m := ended.FindStringSubmatch(line)
	if m == nil {
		r.said = append(r.said, line)
		return
	}
	if m[1] == "FAIL" {
		r.told++
		r.failures = append(r.failures, r.suite+": "+m[2]+some(r.said, 0, 8))
	}
	r.said = nil
}

// some is the beginning and the end of what was said, so many lines of each, indented.
func some(lines []string, first, last int) string {
	if cut := len(lines) - first - last; cut > 1 {
		lines = slices.Concat(lines[:first], lines[len(lines)-last:])
		if first > 0 {
			lines = slices.Insert(lines, first, fmt.Sprintf("[… %d lines]", cut))
		}
	}
	var b strings.Builder
	for _, line := range lines {
		b.WriteString("\n    " + strings.TrimSpace(line))
	}
	return b.String()
}

func (r *reader) line(line string) {
	var e event
	if strings.HasPrefix(line, `{"`) && json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
		r.event(e)
		return
	}
	fmt.Fprintln(r.out, line)
	if m := counts.FindStringSubmatch(line); m != nil {
		// A suite that does not count its skips still names them.
		said := cmp.Or(m[3], strconv.Itoa(r.named))
		r.named = 0
		for i, into := range []*int{&r.passed, &r.failed, &r.skipped} {
			n, _ := strconv.Atoi(append(m[1:3:3], said)[i])
			*into += n
		}
		if m[2] != "0" && r.told == 0 {
			r.failures = append(r.failures, r.suite+": "+line)
		}
		r.told = 0
	}
	r.ended(line)
	if m := skip.FindStringSubmatch(line); m != nil {
		r.named++
		r.skips = append(r.skips, r.suite+": "+m[1]+r.why)
		r.why = ""
	} else if why, ok := strings.CutPrefix(strings.TrimSpace(line), "skipped:"); ok {
		r.why = ":" + why
	}
}

func (r *reader) event(e event) {
	name := e.Package + "." + e.Test
	switch e.Action {
	case "output":
		r.output[name] = append(r.output[name], e.Output)
		return
	case "build-output":
		fmt.Fprint(r.out, e.Output)
		return
	case "start", "run", "pause", "cont", "bench", "build-fail":
		return
	}
	output := r.output[name]
	delete(r.output, name)
	if e.Test == "" {
		r.packageEnd(e, output)
		return
	}
	switch e.Action {
	case "pass":
		r.passed++
	case "skip":
		r.skipped++
		r.skips = append(r.skips, name+": "+reason(output))
	case "fail":
		r.failed++
		// What was wrong comes first, then what others said meanwhile.
		r.failures = append(r.failures, name+some(output, 20, 12))
		fmt.Fprint(r.out, strings.Join(output, ""))
	}
}

func (r *reader) packageEnd(e event, output []string) {
	switch e.Action {
	case "pass":
		fmt.Fprintf(r.out, "ok    %s %.1f s\n", e.Package, e.Elapsed)
	case "fail":
		fmt.Fprint(r.out, strings.Join(output, ""))
		fmt.Fprintf(r.out, "FAIL  %s %.1f s\n", e.Package, e.Elapsed)
		// A package can fail without a test of its own failing: it does not build, or it died.
		if !slices.ContainsFunc(r.failures, func(f string) bool { return strings.HasPrefix(f, e.Package+".") }) {
			r.failed++
			r.failures = append(r.failures, e.Package)
		}
	}
}

// reason is what a test said before it was skipped.
func reason(output []string) string {
	var said []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "===") || strings.HasPrefix(line, "---") {
			continue
		}
		said = append(said, line)
	}
	return strings.Join(said, " ")
}
