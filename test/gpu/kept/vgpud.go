// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticks are those of /proc/PID/stat in a second, on all of Linux that matters here.
const ticks = 100

// vgpuds are the numbers of the parent and of the worker, in this order; whoever is not there is 0.
func (t *trial) vgpuds() (parent, worker int) {
	program := t.Home.Program("vgpud")
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		name, _ := os.Readlink(filepath.Join("/proc", entry.Name(), "exe"))
		words, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		switch {
		case name != program:
		case strings.HasSuffix(string(words), "\x00worker\x00"):
			worker = pid
		default:
			parent = pid
		}
	}
	return parent, worker
}

// field of /proc/PID/stat, counted from 1 as in proc(5); 0 of who is gone.
func field(pid, number int) uint64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	if len(fields) <= number-3 {
		return 0
	}
	value, _ := strconv.ParseUint(fields[number-3], 10, 64)
	return value
}

// vgpudCPU is what both have used.
func (t *trial) vgpudCPU() (used time.Duration) {
	parent, worker := t.vgpuds()
	for _, pid := range []int{parent, worker} {
		if pid != 0 {
			used += time.Duration(field(pid, 14)+field(pid, 15)) * time.Second / ticks
		}
	}
	return used
}

func (t *trial) signalVgpud(sig syscall.Signal) {
	parent, worker := t.vgpuds()
	for _, pid := range []int{parent, worker} { // the parent first, so that it does not answer for the worker
		if pid != 0 {
			syscall.Kill(pid, sig)
		}
	}
}
