// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// story prints what happens and remembers what went wrong.
type story struct {
	ctx      context.Context
	c        *cluster.Cluster
	one, two cluster.User
	python   string // with PyTorch; "" when there is none to show
	colour   bool
	parts    int
	checks   int
	problems []string
}

func (s *story) title(text string) {
	s.parts++
	line := fmt.Sprintf("%d. %s", s.parts, text)
	if s.colour {
		line = "\033[1m" + line + "\033[0m"
	}
	fmt.Printf("\n%s\n\n", line)
}

func (s *story) say(format string, args ...any) { fmt.Printf("   "+format+"\n", args...) }

func (s *story) gap() { fmt.Println() }

// show prints a command line, runs it, and prints what it says.
func (s *story) show(u cluster.User, line string) cluster.Result {
	prompt := "$"
	if u.UID == 0 {
		prompt = "#"
	}
	fmt.Printf("%s%s %s\n", u.Name, prompt, line)
	result := s.c.Run(s.ctx, u, line)
	fmt.Print(result.Output())
	if out := result.Output(); out != "" && !strings.HasSuffix(out, "\n") {
		fmt.Println()
	}
	return result
}

func (s *story) check(ok bool, format string, args ...any) bool {
	s.checks++
	if !ok && s.ctx.Err() == nil {
		problem := fmt.Sprintf(format, args...)
		s.problems = append(s.problems, problem)
		fmt.Println("NOT AS IT SHOULD BE:", problem)
	}
	return ok
}

// until polls until done, and says every few seconds that it still waits.
func (s *story) until(what string, deadline time.Duration, done func() bool) {
	begin, told := time.Now(), 2*time.Second
	for !done() {
		waited := time.Since(begin)
		if waited > deadline || s.ctx.Err() != nil {
			s.check(false, "%s: not within %v", what, deadline)
			return
		}
		if waited > told {
			s.say("… waiting for %s (%d s)", what, int(waited.Seconds()))
			told += 3 * time.Second
		}
		select {
		case <-s.ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

var submitted = regexp.MustCompile(`Submitted batch job (\d+)`)

// submit shows an sbatch line and returns the job's id.
func (s *story) submit(u cluster.User, line string) string {
	result := s.show(u, line)
	match := submitted.FindStringSubmatch(result.Stdout)
	if !s.check(match != nil, "%s: no job", line) {
		return ""
	}
	return match[1]
}

// state is the job's, in squeue's words; "" when squeue no longer knows it.
func (s *story) state(job string) string {
	return strings.TrimSpace(s.c.Run(s.ctx, s.c.Root(), "squeue -h -t all -o %T -j "+job).Stdout)
}

// ended says that a job will do nothing more.
func (s *story) ended(job string) bool {
	switch s.state(job) {
	case "PENDING", "RUNNING", "COMPLETING", "CONFIGURING":
		return false
	}
	return true
}

func (s *story) awaitEnd(job string) {
	if job == "" {
		return
	}
	s.until("job "+job, 60*time.Second, func() bool { return s.ended(job) })
	state := s.state(job)
	s.check(state == "COMPLETED", "job %s ended as %s", job, state)
}

// write puts a file into a user's home.
func (s *story) write(u cluster.User, name, text string) {
	path := filepath.Join(u.Home, name)
	err := os.WriteFile(path, []byte(text), 0o755)
	if err == nil {
		err = os.Chown(path, int(u.UID), int(u.GID))
	}
	s.check(err == nil, "write %s: %v", path, err)
}

// logs prints what the node's side said, for whoever has to find out.
func (s *story) logs() {
	for _, name := range []string{"vgpu.log", "slurmd-n1.log", "slurmctld.log"} {
		data, err := os.ReadFile(s.c.Home.Path("log", name))
		if err != nil {
			continue
		}
		lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
		fmt.Printf("--- the end of %s\n%s\n", name, strings.Join(lines[max(0, len(lines)-30):], "\n"))
	}
}
