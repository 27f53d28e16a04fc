// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// deviceCgroups is where Slurm keeps jobs from devices.
const deviceCgroups = "/sys/fs/cgroup/devices"

// Constrains says that on the node with shards Slurm itself opens to a job the GPUs alone that it picked.
func (c *Cluster) Constrains() bool {
	_, err := os.Stat(filepath.Join(deviceCgroups, "devices.allow"))
	return c.Shards && c.gres.simulated && err == nil
}

// constrainDevices gives the node with shards a folder of configuration of its own, in which ConstrainDevices is on. The others
// have it off, as whole_gpus needs it.
func (c *Cluster) constrainDevices() error {
	if !c.Constrains() {
		return nil
	}
	etc := c.Home.Path("etc-" + shardNode)
	if err := os.MkdirAll(etc, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"gres.conf", "cli_filter.lua", "job_submit.lua"} {
		if err := os.Symlink(c.Home.Path("etc", name), filepath.Join(etc, name)); err != nil {
			return err
		}
	}
	conf := strings.Replace(c.slurmConf(), "TaskPlugin=task/none", "TaskPlugin=task/cgroup", 1)
	if err := os.WriteFile(filepath.Join(etc, "slurm.conf"), []byte(conf), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(etc, "cgroup.conf"), []byte("CgroupPlugin=cgroup/v1\nConstrainDevices=yes\n"), 0o644)
}

// envOf is what a node's slurmd gets besides what all get.
func (c *Cluster) envOf(node string) []string {
	if node != shardNode || !c.Constrains() {
		return nil
	}
	return []string{"SLURM_CONF=" + c.Home.Path("etc-"+shardNode, "slurm.conf")}
}

// numberDevices gives the simulated GPUs device numbers of their own, by which a cgroup tells them apart.
func (c *Cluster) numberDevices() error {
	if !c.Constrains() {
		return nil
	}
	for i, minor := range []int{5, 7} { // zero and full, which nobody misses
		path := filepath.Join(c.gres.deviceDir, fmt.Sprintf("nvidia%d", i))
		if err := os.Remove(path); err != nil {
			return err
		}
		if out, err := exec.Command("mknod", "-m", "666", path, "c", "1", fmt.Sprint(minor)).CombinedOutput(); err != nil {
			return fmt.Errorf("mknod: %w: %s", err, out)
		}
	}
	return nil
}
