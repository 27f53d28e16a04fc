// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const mostParamBytes = 64 << 10

// readMemory is of the process that makes a call; a number of a thread does.
func readMemory(tid uint32, address uint64, bytes int) ([]byte, bool) {
	data := make([]byte, bytes)
	if bytes == 0 {
		return data, true
	}
	local := unix.Iovec{Base: &data[0]}
	local.SetLen(bytes)
	n, err := unix.ProcessVMReadv(int(tid), []unix.Iovec{local}, []unix.RemoteIovec{{Base: uintptr(address), Len: bytes}}, 0)
	return data, err == nil && n == bytes
}

func writeMemory(tid uint32, address uint64, data []byte) bool {
	if len(data) == 0 {
		return true
	}
	local := unix.Iovec{Base: &data[0]}
	local.SetLen(len(data))
	n, err := unix.ProcessVMWritev(int(tid), []unix.Iovec{local}, []unix.RemoteIovec{{Base: uintptr(address), Len: len(data)}}, 0)
	return err == nil && n == len(data)
}

// field is a number in a file of /proc; 0: there is none.
func field(path, name string) uint64 {
	text, _ := os.ReadFile(path) // of a process that is gone
	for line := range strings.SplitSeq(string(text), "\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			return n
		}
	}
	return 0
}

func processOf(tid uint32) int { return int(field(fmt.Sprintf("/proc/%d/status", tid), "Tgid")) }

// nodeOf is the inode of a thread's descriptor.
func nodeOf(tid uint32, fd int32) uint64 {
	return field(fmt.Sprintf("/proc/%d/fdinfo/%d", tid, fd), "ino")
}
