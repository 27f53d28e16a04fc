// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// controlled is a folder with the control device of two simulated GPUs.
func controlled(t *testing.T) (dir string) {
	t.Helper()
	program, err := filepath.Abs("../../build/sim/simgpu-control")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil || os.Geteuid() != 0 {
		t.Skip("takes root, and build/sim")
	}
	dir = t.TempDir()
	for _, name := range []string{"nvidia0", "nvidia1"} {
		write(t, filepath.Join(dir, name), "")
	}
	cmd := exec.Command(program, dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Signal(unix.SIGTERM); _ = cmd.Wait() })
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Skip("no FUSE file system can be mounted here")
	}
	return dir
}

func TestTheProbeFindsGPUsOfTheDriver(t *testing.T) {
	dir := controlled(t)
	control := filepath.Join(dir, "link")
	if err := os.Symlink("control/nvidiactl", control); err != nil {
		t.Fatal(err)
	}
	before := openFiles(t)
	wrong, err := findGPUs(control, dir, []device.GPU{{PCIBusID: "00000000:10:00.0"}, {PCIBusID: "00000000:1f:00.0", Minor: 1}, {PCIBusID: "00000000:99:00.0"}, {PCIBusID: "x"}})
	if err != nil || len(wrong) != 4 || wrong[0] != nil || wrong[1] != nil {
		t.Fatalf("%v, %v", wrong, err)
	}
	if !strings.Contains(wrong[2].Error(), "no GPU at 00000000:99:00.0") || wrong[3] == nil {
		t.Errorf("of GPUs that are not there: %v", wrong[2:])
	}
	if after := openFiles(t); after != before {
		t.Errorf("%d files are open, %d were", after, before)
	}
}
