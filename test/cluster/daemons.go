// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// daemon is one server of the cluster, running in the foreground as our child.
type daemon struct {
	name string
	argv []string
	env  []string
	cred *syscall.Credential
	logs []string // where it writes about itself

	cmd  *exec.Cmd
	done chan struct{} // closed when the process was reaped
	err  error
}

// launcher starts every daemon from one thread that never ends: the kernel ties "die with your
// parent" to the parent's thread.
var launcher = func() chan<- func() {
	jobs := make(chan func())
	go func() {
		runtime.LockOSThread()
		for job := range jobs {
			job()
		}
	}()
	return jobs
}()

func (c *Cluster) start(d *daemon) error {
	c.release(d.name)
	out, err := os.OpenFile(c.Home.Path("log", d.name+".out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	d.logs = []string{c.Home.Path("log", d.name+".log"), c.Home.Path("log", "slurmd-"+d.name+".log"), out.Name()}
	d.cmd = exec.Command(d.argv[0], d.argv[1:]...)
	d.cmd.Env = append(c.baseEnv(), d.env...)
	d.cmd.Dir = string(c.Home)
	d.cmd.Stdout, d.cmd.Stderr = out, out
	// A session of its own: Ctrl-C is for the one who keeps it, not for the daemon.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL, Credential: d.cred}
	started := make(chan error)
	launcher <- func() { started <- d.cmd.Start() }
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", d.name, err)
	}
	d.done = make(chan struct{})
	go func() {
		d.err = d.cmd.Wait()
		close(d.done)
	}()
	c.daemons[d.name] = d
	return record(string(c.Home), d.name, d.cmd.Process.Pid)
}

func (d *daemon) running() bool {
	select {
	case <-d.done:
		return false
	default:
		return true
	}
}

// StopDaemon ends one daemon: "slurmdbd", "slurmctld", "mariadb", "munge" or a node's name.
func (c *Cluster) StopDaemon(name string, sig syscall.Signal) error {
	d, ok := c.daemons[name]
	if !ok {
		return fmt.Errorf("stop %s: no such daemon", name)
	}
	_ = d.cmd.Process.Signal(sig)
	select {
	case <-d.done:
		return nil
	case <-time.After(60 * time.Second):
		return errors.Join(fmt.Errorf("stop %s: it does not end on %v", name, sig), d.cmd.Process.Kill())
	}
}

// StartDaemon starts a daemon that was stopped, as it was started first.
func (c *Cluster) StartDaemon(name string) error {
	d, ok := c.daemons[name]
	if !ok {
		return fmt.Errorf("start %s: no such daemon", name)
	}
	if d.running() {
		return fmt.Errorf("start %s: it is running", name)
	}
	return c.start(&daemon{name: d.name, argv: d.argv, env: d.env, cred: d.cred})
}

// await polls until ready returns nil, one of the daemons that it waits for dies, or a deadline
// passes. A wait of more than two seconds is told to the user.
func (c *Cluster) await(ctx context.Context, what string, deadline time.Duration, ready func() error, on ...string) error {
	begin := time.Now()
	told := 2 * time.Second
	for {
		err := ready()
		if err == nil {
			return nil
		}
		for _, name := range on {
			if d := c.daemons[name]; d != nil && !d.running() {
				return fmt.Errorf("%s: %s ended (%v)\n%s", what, name, d.err, c.tail(d))
			}
		}
		waited := time.Since(begin)
		if waited > deadline {
			var text strings.Builder
			fmt.Fprintf(&text, "%s: not within %v: %v", what, deadline, err)
			for _, name := range on {
				if d := c.daemons[name]; d != nil {
					text.WriteString("\n" + c.tail(d))
				}
			}
			return errors.New(text.String())
		}
		if waited > told {
			c.progress("still waiting for %s (%d s)", what, int(waited.Seconds()))
			told += 3 * time.Second
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// tail returns the end of what a daemon wrote.
func (c *Cluster) tail(d *daemon) string {
	var b strings.Builder
	for _, path := range d.logs {
		data, err := os.ReadFile(path)
		if err != nil || len(data) == 0 {
			continue
		}
		lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
		fmt.Fprintf(&b, "--- the end of %s\n%s\n", path, strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
	return b.String()
}
