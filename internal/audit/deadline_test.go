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
		wantEnd(t, role, what, want)
	}
}

// wantEnd runs the test that runs again, as another process in this role, and looks how it ends.
func wantEnd(t *testing.T, role, what string, want syscall.Signal) {
	t.Helper()
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=30s")
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

// TestNobodyHangsAfterGivingUp: a process that NVML did not answer ends even where it hangs again on its way out, unless its next
// question is answered.
func TestNobodyHangsAfterGivingUp(t *testing.T) {
	const role = "AUDIT_TEST_GIVEN_UP"
	if what := os.Getenv(role); what != "" {
		hangs := func() (int, error) { select {} }
		if _, err := bounded(time.Millisecond, time.Minute, 2*time.Second, hangs); !errors.Is(err, errNoAnswer) {
			t.Fatal(err)
		}
		if what == "hangs again" {
			select {}
		}
		if n, err := bounded(time.Minute, 0, 0, func() (int, error) { return 7, nil }); n != 7 || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(3 * time.Second) // what would have come has come by then
		return
	}
	for what, want := range map[string]syscall.Signal{"hangs again": syscall.SIGKILL, "is answered": 0} {
		wantEnd(t, role, what, want)
	}
}
