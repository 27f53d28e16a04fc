// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// User is an ordinary user of the cluster.
type User struct {
	Name string
	UID  uint32
	GID  uint32
	Home string
}

// makeUsers takes the users that were given, or makes two. In a namespace they exist in its own
// /etc alone; in place they are noted, to be removed at the end.
func (c *Cluster) makeUsers() error {
	names := c.UserNames
	for i := 1; len(names) < 2; i++ {
		name := fmt.Sprintf("vgpu-demo%d", i)
		if _, err := user.Lookup(name); err == nil {
			continue // another cluster's
		}
		home := c.Home.Path("home", name)
		cmd := exec.Command(tool("useradd"), "-M", "-N", "-d", home, "-s", "/bin/bash", name)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("useradd %s: %w: %s", name, err, bytes.TrimSpace(out))
		}
		if c.Home.InPlace() {
			file, err := os.OpenFile(c.Home.Path(usersFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
			if err != nil {
				return err
			}
			fmt.Fprintln(file, name)
			if err := file.Close(); err != nil {
				return err
			}
		}
		names = append(names, name)
	}
	for _, name := range names {
		account, err := user.Lookup(name)
		if err != nil {
			return err
		}
		uid, _ := strconv.ParseUint(account.Uid, 10, 32)
		gid, _ := strconv.ParseUint(account.Gid, 10, 32)
		if uid == 0 {
			return fmt.Errorf("user %s: jobs of the cluster run as ordinary users, not as root", name)
		}
		u := User{Name: name, UID: uint32(uid), GID: uint32(gid), Home: c.Home.Path("home", name)}
		if err := os.MkdirAll(u.Home, 0o755); err != nil {
			return err
		}
		if err := os.Chown(u.Home, int(uid), int(gid)); err != nil {
			return err
		}
		if err := c.makeRuntimeDir(u); err != nil {
			return err
		}
		c.Users = append(c.Users, u)
	}
	return nil
}

// RuntimeDir is a user's XDG_RUNTIME_DIR, as a login of his would have it.
func (c *Cluster) RuntimeDir(u User) string {
	return filepath.Join("/run/user", strconv.FormatUint(uint64(u.UID), 10))
}

// makeRuntimeDir makes it in the cluster's own /run; without it Podman's folders would be made in /tmp.
func (c *Cluster) makeRuntimeDir(u User) error {
	if c.Home.InPlace() {
		return nil
	}
	folder := c.RuntimeDir(u)
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	return os.Chown(folder, int(u.UID), int(u.GID))
}

// Result is a command that ran.
type Result struct {
	Command string
	Stdout  string
	Stderr  string
	Code    int
}

// Output is everything that the command wrote.
func (r Result) Output() string { return r.Stdout + r.Stderr }

func (r Result) String() string {
	return fmt.Sprintf("$ %s\n%s%s(exit %d)", r.Command, r.Stdout, r.Stderr, r.Code)
}

// baseEnv is what the cluster's daemons get.
func (c *Cluster) baseEnv() []string {
	return []string{
		"PATH=" + c.Home.Path("bin") + ":" + c.Home.prefixed("bin") + ":" + c.Home.prefixed("sbin") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"SLURM_CONF=" + c.Home.Path("etc", "slurm.conf"),
		homeEnv + "=" + string(c.Home),
		"LC_ALL=C.UTF-8",
		"TZ=" + os.Getenv("TZ"),
	}
}

// Env is what a login of the user gets.
func (c *Cluster) Env(u User) []string {
	env := []string{"HOME=" + u.Home, "USER=" + u.Name, "LOGNAME=" + u.Name, "SHELL=/bin/bash"}
	for _, assignment := range c.baseEnv() {
		if path, ok := strings.CutPrefix(assignment, "PATH="); ok && c.ExtraPath != "" {
			assignment = "PATH=" + path + ":" + c.ExtraPath
		}
		env = append(env, assignment)
	}
	if u.UID == 0 && len(c.Nodes) == 1 {
		// Several nodes can share this host, so its name does not tell which one is meant.
		env = append(env, "SLURMD_NODENAME="+c.Nodes[0])
	}
	return env
}

// Root is who administers the cluster.
func (c *Cluster) Root() User { return User{Name: "root", Home: c.Home.Path("home", "root")} }

// Command prepares a shell command line of a user, in the user's home.
func (c *Cluster) Command(ctx context.Context, u User, line string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/bin/bash", "-c", line)
	cmd.Env = c.Env(u)
	cmd.Dir = u.Home
	if u.UID != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.UID, Gid: u.GID}}
	}
	return cmd
}

// Run runs a shell command line as a user.
func (c *Cluster) Run(ctx context.Context, u User, line string) Result {
	cmd := c.Command(ctx, u, line)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	code := 0
	if err != nil {
		code = -1
		if cmd.ProcessState != nil {
			code = cmd.ProcessState.ExitCode()
		} else {
			stderr.WriteString(err.Error())
		}
	}
	return Result{line, stdout.String(), stderr.String(), code}
}
