// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// favour gives this program a core at once where jobs have all cores: it works for a moment, and a worker that has to wait for a core looks like one that
// hangs. Later threads inherit the priority. Without the right to it, vgpud is slower on a full node.
func favour() {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, thread := range threads {
		if id, err := strconv.Atoi(thread.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, firstPriority)
		}
	}
}
