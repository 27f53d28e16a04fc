// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// runner runs suites and sums up.
type runner struct {
	command []string

	mu      sync.Mutex // of what follows, and of out
	out     io.Writer
	total   tally
	running []string
}

// leftover runs a command in the time of processors that nobody else wants.
var leftover = []string{"chrt", "--idle", "0"}

const progressEvery = time.Minute

func (r *runner) alone(suite string) {
	begin := time.Now()
	fmt.Fprintf(r.out, "==> %s\n", suite)
	r.end(suite, begin, run(append(slices.Clone(r.command), suite), suite, r.out))
}

func (r *runner) end(suite string, begin time.Time, one tally) {
	fmt.Fprintf(r.out, "<== %s: %d passed, %d failed, %d skipped in %.0f s\n", suite, one.passed, one.failed, one.skipped,
		time.Since(begin).Seconds())
	r.total.add(one)
}

// beside runs the suites of one list side by side, and those of the other one after the other in what time is left.
func (r *runner) beside(sideBySide, after []string) {
	var wait sync.WaitGroup
	for _, suite := range sideBySide {
		wait.Go(func() { r.held(suite, r.command) })
	}
	wait.Go(func() {
		for _, suite := range after {
			r.held(suite, slices.Concat(leftover, r.command))
		}
	})
	done := make(chan struct{})
	go func() {
		wait.Wait()
		close(done)
	}()
	begin := time.Now()
	for tick := time.NewTicker(progressEvery); ; {
		select {
		case <-done:
			tick.Stop()
			return
		case <-tick.C:
			r.mu.Lock()
			fmt.Fprintf(r.out, "... %.0f s: %s\n", time.Since(begin).Seconds(), strings.Join(r.running, ", "))
			r.mu.Unlock()
		}
	}
}

// held runs a suite and shows what it said when it ended.
func (r *runner) held(suite string, command []string) {
	begin := time.Now()
	r.mu.Lock()
	r.running = append(r.running, suite)
	fmt.Fprintf(r.out, "... %s begins\n", suite)
	r.mu.Unlock()
	var said bytes.Buffer
	one := run(append(slices.Clone(command), suite), suite, &said)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = slices.DeleteFunc(r.running, func(name string) bool { return name == suite })
	fmt.Fprintf(r.out, "==> %s\n%s", suite, &said)
	r.end(suite, begin, one)
}
