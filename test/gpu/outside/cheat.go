// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// cheats starts a program as a user may, who then makes the driver's calls on it: a process may copy descriptors of its children. It ends with the program.
func cheats(programs, how string, command []string) int {
	act, known := map[string]func(*owned){
		"slice":  func(p *owned) { p.slice(1000000) },
		"enable": func(p *owned) { p.off(false) },
		"idle":   func(p *owned) { p.waitForIdle() },
	}[how]
	if !known || len(command) == 0 {
		fmt.Fprintln(os.Stderr, "outside --cheat slice|enable|idle PROGRAM…")
		return 2
	}
	handlesFile := filepath.Join(os.TempDir(), fmt.Sprintf("handles-%d", os.Getpid()))
	defer os.Remove(handlesFile)
	child := exec.Command(command[0], command[1:]...)
	child.Env = append(os.Environ(), "LD_PRELOAD="+filepath.Join(programs, "handles.so")+" "+os.Getenv("LD_PRELOAD"), "HANDLES_FILE="+handlesFile)
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := child.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "outside:", err)
		return 1
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for p := (*owned)(nil); ; time.Sleep(time.Millisecond) {
		select {
		case err := <-ended:
			if err != nil {
				fmt.Fprintln(os.Stderr, "outside:", err)
				return 1
			}
			return 0
		default:
		}
		if p == nil {
			if found := newOwned(child.Process.Pid, readHandles(handlesFile)); len(found.channels) > 0 {
				p = found
			}
			continue
		}
		act(p)
	}
}
