// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// reporterName is the program that reports. It stands beside the epilog, or in PREFIX/bin when that
// is in PREFIX/lib/slurm-vgpu.
const reporterName = "vgpuctl"

func findReporter() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	dir := filepath.Dir(self)
	beside := filepath.Join(dir, reporterName)
	for _, path := range []string{beside, filepath.Join(dir, "..", "..", "bin", reporterName)} {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	return "", &os.PathError{Op: "find", Path: beside, Err: os.ErrNotExist}
}

// Start starts a reporter that outlives its caller and holds nothing of it: neither its
// process group, which slurmd kills, nor its output, which slurmd waits for. The configuration is
// the caller's, for this node. With reports disabled the spool is moved into the history instead.
func Start(cfg config.Config, configPath string) error {
	if !cfg.Report.Enabled {
		return archiveAll(cfg)
	}
	reporter, err := findReporter()
	if err != nil {
		return fmt.Errorf("start reporter: %w", err)
	}
	// What slurmd left open must not stay open for as long as a database is away. Go opens its own
	// files close-on-exec.
	// A kernel before 5.11 cannot do it (ENOSYS, EINVAL); slurmd leaves nothing open that matters then.
	err = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if err != nil && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("start reporter: close inherited files: %w", err)
	}
	cmd := exec.Command(reporter, "report", "--flush", "--config", configPath) //nolint:noctx // it outlives its parent; stdio: /dev/null
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, name := range []string{"SLURM_CONF", "SLURMD_NODENAME"} { // %n in the configuration needs the latter
		if value := os.Getenv(name); value != "" { //nolint:forbidigo // which Slurm is asked
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start reporter: %w", err)
	}
	if err := cmd.Process.Release(); err != nil {
		return fmt.Errorf("start reporter: %w", err)
	}
	return nil
}

func archiveAll(cfg config.Config) error {
	records, _, err := usage.List(cfg.Spool())
	if err != nil {
		return err
	}
	for _, rec := range records {
		rec.Outcome = OutcomeDisabled
		if err := usage.Keep(cfg.Spool(), rec); err != nil {
			return err
		}
	}
	if len(records) == 0 {
		return nil
	}
	return usage.Trim(cfg.Spool())
}
