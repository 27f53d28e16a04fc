// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// ready is the line with which a holding process says that its starter may go.
const ready = "cluster is ready"

// up starts a process that keeps the cluster, shows what it says, and leaves it behind.
func up(build string, args []string) error {
	for _, home := range cluster.Held(build) {
		return fmt.Errorf("one is up already in %s; `make cluster-down` stops it", home)
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	logPath := filepath.Join(build, "cluster.log")
	log, err := os.Create(logPath)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(executable, append([]string{"hold"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == ready {
			return cmd.Process.Release()
		}
		fmt.Println(lines.Text())
	}
	err = cmd.Wait()
	said, _ := os.ReadFile(logPath)
	return errors.Join(errors.New("it did not come up"), err, errors.New(strings.TrimSpace(string(said))))
}

func down(build string) error {
	var errs []error
	for _, home := range cluster.Held(build) {
		fmt.Println("cluster: stopping the one in", home)
		errs = append(errs, cluster.Stop(home))
	}
	return errors.Join(append(errs, cluster.ClearStale())...)
}

// hold keeps a cluster until it is told to end.
func hold(ctx context.Context, home cluster.Home, options cluster.Options) int {
	options.Progress = func(text string) { fmt.Println("cluster:", text) }
	c, err := cluster.Start(ctx, home, options)
	if err == nil {
		err = c.Hold(options.Build)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		return 1
	}
	kind := "NVIDIA"
	if c.Simulated() {
		kind = "simulated"
	}
	fmt.Printf(`
A cluster is up: %s with %d %s GPUs each, users %s and %s. To use it:

  %s [USER]      a shell of a user: %[4]s (the default), %[5]s or root
  export SLURM_CONF=%[7]s   for Slurm's commands from outside
  make cluster-down                  stops it; nothing of it stays

Logs are in %[8]s.
`, strings.Join(c.Nodes, ", "), len(c.GPUs()), kind, c.Users[0].Name, c.Users[1].Name,
		home.Path("enter"), home.Path("etc", "slurm.conf"), home.Path("log"))
	fmt.Println(ready)
	os.Stdout.Close()
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.Background(), cluster.GraceToStop)
	defer cancel()
	c.Stop(stop)
	return 0
}
