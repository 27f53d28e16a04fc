// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"
)

// registered makes the cluster, its account and its users known to slurmdbd; it is ready when
// slurmdbd took that.
func (c *Cluster) registered(ctx context.Context) func() error {
	listening := dial("tcp", c.address("slurmdbd"))
	return func() error {
		if err := listening(); err != nil {
			return err
		}
		commands := []string{
			"sacctmgr -i add cluster " + c.Name,
			"sacctmgr -i add account vgpu cluster=" + c.Name,
		}
		for _, u := range c.Users {
			commands = append(commands, fmt.Sprintf("sacctmgr -i add user %s account=vgpu cluster=%s", u.Name, c.Name))
		}
		for _, command := range commands {
			result := c.Run(ctx, c.Root(), command)
			if result.Code != 0 && !strings.Contains(result.Output(), "othing") { // "Nothing new added."
				return errors.New(result.String())
			}
		}
		return nil
	}
}

// startSlurm starts slurmctld and every slurmd, and returns when all nodes are idle.
func (c *Cluster) startSlurm(ctx context.Context) error {
	if err := c.start(&daemon{name: "slurmctld", argv: []string{tool("slurmctld"), "-D"}}); err != nil {
		return err
	}
	if err := c.constrainDevices(); err != nil {
		return err
	}
	if err := c.startControl(ctx); err != nil {
		return err
	}
	for _, node := range c.Nodes {
		if err := c.start(&daemon{name: node, argv: []string{tool("slurmd"), "-D", "-N", node}, env: c.envOf(node)}); err != nil {
			return err
		}
	}
	if err := c.await(ctx, "slurmctld", 90*time.Second, dial("tcp", c.address("slurmctld")), "slurmctld"); err != nil {
		return err
	}
	return c.AwaitIdle(ctx)
}

// StartConfigless starts a node's slurmd, which was stopped, without any of Slurm's files: it asks the controller for them,
// which must permit that. StartDaemon starts it with them again. Not in place: programs that run without SLURM_CONF find
// what it was sent through the cluster's own /run, and munged where Slurm has it compiled in.
func (c *Cluster) StartConfigless(node string) error {
	d, ok := c.daemons[node]
	if !ok || d.running() {
		return fmt.Errorf("start %s: it is no daemon that was stopped", node)
	}
	if err := os.MkdirAll("/run/munge", 0o755); err != nil {
		return err
	}
	socket := "/run/munge/munge.socket.2"
	if err := os.Symlink(c.Home.Path("munge", "socket"), socket); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	argv := []string{tool("env"), "-u", "SLURM_CONF", tool("slurmd"), "-D", "-N", node, "--conf-server", c.address("slurmctld")}
	if err := c.start(&daemon{name: node, argv: argv}); err != nil {
		return err
	}
	c.daemons[node].argv, c.daemons[node].env = d.argv, d.env
	return nil
}

// AwaitIdle returns when every node is up, without jobs and without a complaint.
func (c *Cluster) AwaitIdle(ctx context.Context) error {
	idle := func() error {
		result := c.Run(ctx, c.Root(), "sinfo -h -N -o '%N %T %E'")
		states := strings.Fields(result.Stdout)
		if result.Code != 0 || len(states) == 0 {
			return errors.New(result.String())
		}
		for line := range strings.Lines(result.Stdout) {
			if fields := strings.Fields(line); len(fields) < 2 || fields[1] != "idle" {
				return fmt.Errorf("sinfo says: %s", strings.TrimSpace(result.Stdout))
			}
		}
		return nil
	}
	return c.await(ctx, "the nodes", 120*time.Second, idle, append([]string{"slurmctld"}, c.Nodes...)...)
}

// Stop cancels what runs and waits until its epilogs are done. The daemons end with the process.
func (c *Cluster) Stop(ctx context.Context) {
	for _, u := range append([]User{c.Root()}, c.Users...) {
		c.Run(ctx, c.Root(), "scancel --user="+u.Name)
	}
	end := time.Now().Add(5 * time.Second)
	for time.Now().Before(end) && ctx.Err() == nil {
		if result := c.Run(ctx, c.Root(), "squeue -h"); strings.TrimSpace(result.Stdout) == "" {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}
