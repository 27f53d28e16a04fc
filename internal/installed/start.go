// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start starts a vgpuctl with the configuration of its caller, for this node. Its caller, a prolog or an epilog, does not wait for it.
func Start(configPath string, args ...string) error {
	path, err := Find("vgpuctl")
	if err != nil {
		return err
	}
	return begin(path, append(args, "--config", configPath)...)
}

const (
	vgpudUnit  = "slurm-vgpu-vgpud.service"
	systemdRun = "/run/systemd/system" // is there where systemd runs (sd_booted(3))
)

// StartVgpud has systemd start vgpud, or starts it where there is no systemd; so too with another configuration than the unit's.
func StartVgpud(configPath string, isUnits bool) error {
	if _, err := os.Stat(systemdRun); err == nil && isUnits {
		return begin(systemctl(), "start", "--no-block", vgpudUnit)
	}
	path, err := Find("vgpud")
	if err != nil {
		return err
	}
	return begin(path, "--config", configPath, "--by-prolog")
}

// systemctl is where a distribution has it. slurmd gives a prolog no PATH to look in (prolog_epilog.html).
func systemctl() string {
	const path = "/usr/bin/systemctl"
	if _, err := os.Stat(path); err != nil {
		return "/bin/systemctl" // where /bin is a folder of its own
	}
	return path
}

// begin starts a program that outlives its caller and holds nothing of it: neither its process group,
// which slurmd kills, nor its output, which slurmd waits for.
func begin(path string, args ...string) error {
	// Files that slurmd left open must not stay open for as long as a database is away. Go opens its own
	// files close-on-exec.
	// A kernel before 5.11 cannot do it (ENOSYS, EINVAL); slurmd leaves nothing open that matters then.
	err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("close inherited files: %w", err)
	}
	cmd := exec.Command(path, args...) //nolint:noctx // it outlives its parent; stdio: /dev/null
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, name := range []string{"SLURM_CONF", "SLURMD_NODENAME"} { // %n in the configuration needs the latter
		if value := os.Getenv(name); value != "" { //nolint:forbidigo // which Slurm is asked
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Process.Release()
}
