// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	controlDaemon = "simgpu-control"
	controlFile   = "nvidiactl"
)

// ErrNoFUSE is where no simulated control device can be.
var ErrNoFUSE = errors.New("this kernel has no FUSE, which the simulated control device takes")

// startControl does so where it can be: vgpud keeps no share of GPU time without.
func (c *Cluster) startControl(ctx context.Context) error {
	if !c.gres.simulated || c.Home.InPlace() { // where mounts are forbidden, so is one of FUSE
		return nil
	}
	err := c.StartControl(ctx)
	if errors.Is(err, ErrNoFUSE) {
		c.progress("nobody keeps shares of GPU time: %v", err)
		return nil
	}
	return err
}

// HasControl says that the simulated GPUs have their control device.
func (c *Cluster) HasControl() bool {
	d := c.daemons[controlDaemon]
	return d != nil && d.running()
}

// StartControl gives the simulated GPUs, which all nodes of the cluster have, a control device: programs that start from now on run on its
// runlists. It is DeviceDir/nvidiactl, and /dev/nvidiactl of the cluster's own /dev.
func (c *Cluster) StartControl(ctx context.Context) error {
	if !c.gres.simulated {
		return errors.New("a simulated control device for GPUs that are real")
	}
	if known, err := os.ReadFile("/proc/filesystems"); err != nil || !strings.Contains(string(known), "\tfuse\n") {
		return errors.Join(ErrNoFUSE, err)
	}
	program := filepath.Join(filepath.Dir(c.gres.nvmlLibrary), controlDaemon)
	if err := c.start(&daemon{name: controlDaemon, argv: []string{program, c.gres.deviceDir}}); err != nil {
		return err
	}
	answers := func() error {
		_, err := os.Stat(filepath.Join(c.gres.deviceDir, controlFile))
		return err
	}
	if err := c.await(ctx, "the control device", 20*time.Second, answers, controlDaemon); err != nil {
		return err
	}
	if c.Home.InPlace() {
		return nil // the host's /dev is no business of a test
	}
	if err := os.Remove(filepath.Join("/dev", controlFile)); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.Symlink(filepath.Join(c.gres.deviceDir, "control", controlFile), filepath.Join("/dev", controlFile))
}

// StopControl takes it away again. Programs that run on it have no GPU any more.
func (c *Cluster) StopControl() error {
	err := c.StopDaemon(controlDaemon, unix.SIGTERM)
	if !c.Home.InPlace() {
		err = errors.Join(err, os.Remove(filepath.Join("/dev", controlFile)))
	}
	return err
}
