// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Command summary runs the test suites of the Makefile one after the other, shows what they say,
// and closes with one line over all of them: N passed, N failed, N skipped.
//
//	summary -- make [ARG…] -- SUITE…
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
	"time"
)

type tally struct {
	passed, failed, skipped int
	failures, skips         []string
}

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	split := slices.Index(args, "--")
	if split < 1 {
		fmt.Fprintln(os.Stderr, "usage: summary -- make [ARG…] -- SUITE…")
		os.Exit(2)
	}
	command, suites := args[:split], args[split+1:]
	var total tally
	for _, suite := range suites {
		begin := time.Now()
		fmt.Printf("==> %s\n", suite)
		one := run(append(slices.Clone(command), suite), suite)
		fmt.Printf("<== %s: %d passed, %d failed, %d skipped in %.0f s\n", suite, one.passed, one.failed, one.skipped,
			time.Since(begin).Seconds())
		total.passed += one.passed
		total.failed += one.failed
		total.skipped += one.skipped
		total.failures = append(total.failures, one.failures...)
		total.skips = append(total.skips, one.skips...)
	}
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

func run(argv []string, suite string) tally {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "GOTESTFLAGS=-json")
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	reader := reader{suite: suite, output: map[string][]string{}}
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
		r.failures = append(r.failures, r.suite+": "+m[2]+last(r.said))
	}
	r.said = nil
}

// last is the end of what was said, a line each, indented.
func last(lines []string) string {
	var b strings.Builder
	for _, line := range lines[max(0, len(lines)-linesOfAFailure):] {
		b.WriteString("\n    " + strings.TrimSpace(line))
	}
	return b.String()
}

const linesOfAFailure = 8

func (r *reader) line(line string) {
	var e event
	if strings.HasPrefix(line, `{"`) && json.Unmarshal([]byte(line), &e) == nil && e.Action != "" {
		r.event(e)
		return
	}
	fmt.Println(line)
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
		fmt.Print(e.Output)
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
		r.failures = append(r.failures, name+last(output))
		fmt.Print(strings.Join(output, ""))
	}
}

func (r *reader) packageEnd(e event, output []string) {
	switch e.Action {
	case "pass":
		fmt.Printf("ok    %s %.1f s\n", e.Package, e.Elapsed)
	case "fail":
		fmt.Print(strings.Join(output, ""))
		fmt.Printf("FAIL  %s %.1f s\n", e.Package, e.Elapsed)
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
