// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// victims are the kinds of processes that are killed, by what is found in their command lines.
var victims = []struct{ what, argument string }{
	{"vgpu-prolog", "vgpu-prolog"}, {"vgpu-epilog", "vgpu-epilog"}, {"slurmstepd", "slurmstepd"}, {"task", "slurm_script"},
	{"reporter", "vgpuctl"},
}

// killMany kills a process every so often until ctx ends, and says how many of each kind.
func (s *soak) killMany(ctx context.Context, every time.Duration) map[string]int {
	random := rand.New(rand.NewPCG(s.random.Uint64(), 1))
	killed := make(map[string]int)
	for ctx.Err() == nil {
		time.Sleep(every)
		s.killOne(random, killed)
	}
	return killed
}

// killOne kills one process of this cluster. Which kind is drawn first, so that there are not only tasks.
func (s *soak) killOne(random *rand.Rand, killed map[string]int) {
	of := make(map[string][]int)
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		pid, err := strconv.Atoi(filepath.Base(folder))
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
		words := strings.Split(string(line), "\x00") // program and first argument: of scripts, the script
		program := strings.Join(words[:min(2, len(words))], " ")
		for _, victim := range victims {
			if strings.Contains(program, victim.argument) && s.isOurs(folder) {
				of[victim.what] = append(of[victim.what], pid)
				break
			}
		}
	}
	victim := victims[random.IntN(len(victims))].what
	if pids := of[victim]; len(pids) > 0 && syscall.Kill(pids[random.IntN(len(pids))], syscall.SIGKILL) == nil {
		killed[victim]++
	}
}

// endOrphans ends the sleeps of extern steps whose slurmstepd was killed. One that was killed as it began has left
// them its pipe to slurmd, which reads from it for ever and lets the job complete for as long (22.05.8).
func (s *soak) endOrphans() (n int) {
	folders, _ := filepath.Glob("/proc/[0-9]*")
	for _, folder := range folders {
		line, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
		if string(line) != "sleep\x00100000000\x00" || !s.isOurs(folder) || strings.Contains(commandOf(parentOf(folder)), "slurmstepd") {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(folder)); err == nil && syscall.Kill(pid, syscall.SIGKILL) == nil {
			n++
		}
	}
	return n
}

func parentOf(folder string) string {
	stat, _ := os.ReadFile(filepath.Join(folder, "stat")) // PID (NAME) STATE PPID
	if words := strings.Fields(string(stat)); len(words) > 3 {
		return filepath.Join("/proc", words[3])
	}
	return ""
}

func commandOf(folder string) string {
	line, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
	return string(line)
}

// isOurs tells the processes of this cluster from those of others on the machine: by their environment, or, as
// slurmstepd writes its title over that, by the log that it has open.
func (s *soak) isOurs(folder string) bool {
	environ, err := os.ReadFile(filepath.Join(folder, "environ"))
	if err == nil && bytes.Contains(environ, []byte("SLURM_CONF="+s.cluster.Home.Path("etc", "slurm.conf")+"\x00")) {
		return true
	}
	open, _ := filepath.Glob(filepath.Join(folder, "fd", "*"))
	for _, file := range open {
		if path, err := os.Readlink(file); err == nil && strings.HasPrefix(path, s.cluster.Home.Path("log")+"/") {
			return true
		}
	}
	return false
}
