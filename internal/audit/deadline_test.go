// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestDeadline: the kernel ends a process whose deadline has passed, and none that has disarmed it.
func TestDeadline(t *testing.T) {
	const role = "AUDIT_TEST_DEADLINE"
	if what := os.Getenv(role); what != "" {
		disarm, err := deadline(20 * time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if what == "disarms" {
			disarm()
			time.Sleep(200 * time.Millisecond) // what would have come has come by then
			return
		}
		select {}
	}
	for what, want := range map[string]syscall.Signal{"hangs": syscall.SIGKILL, "disarms": 0} {
		child := exec.Command(os.Args[0], "-test.run=^TestDeadline$")
		child.Env = append(os.Environ(), role+"="+what)
		err := child.Run()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if status := child.ProcessState.Sys().(syscall.WaitStatus); want != 0 && (!status.Signaled() || status.Signal() != want) || want == 0 && err != nil {
			t.Errorf("who %s: %v", what, err)
		}
	}
}
