// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// tree is a copy of the sources in which faults are tried, one at a time.
type tree struct {
	root string
	log  *os.File
}

// newTree makes the copy, or brings it up to date: what did not change keeps its time, so that make leaves it alone.
func newTree(root string) (*tree, error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(root+".log", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	listed, err := exec.Command("git", "ls-files", "-co", "--exclude-standard", "-z").Output()
	if err != nil {
		return nil, fmt.Errorf("list the sources: %w", err)
	}
	t := &tree{root: root, log: log}
	keep := map[string]bool{}
	for name := range strings.SplitSeq(strings.TrimRight(string(listed), "\x00"), "\x00") {
		keep[name] = true
		if err := t.copy(name); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
	}
	return t, t.removeOthers(keep)
}

func (t *tree) copy(name string) error {
	info, err := os.Lstat(name)
	if err != nil {
		return err
	}
	to := filepath.Join(t.root, name)
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(name)
		if err != nil {
			return err
		}
		os.Remove(to)
		return os.Symlink(target, to)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if there, err := os.ReadFile(to); err == nil && bytes.Equal(there, text) {
		return nil
	}
	return os.WriteFile(to, text, info.Mode().Perm())
}

func (t *tree) removeOthers(keep map[string]bool) error {
	return filepath.WalkDir(t.root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(t.root, path)
		switch {
		case err != nil:
			return err
		case name == "build":
			return fs.SkipDir
		case !d.IsDir() && !keep[name]:
			return os.Remove(path)
		}
		return nil
	})
}

// outcome is how a command ended.
type outcome int

const (
	passed outcome = iota
	failed
	tooLong
)

// run starts a command in the tree and ends with it all that it started: a faulty program may leave anything behind.
func (t *tree) run(limit time.Duration, env []string, command ...string) (outcome, error) {
	temporary, err := os.MkdirTemp("", "vgpu-mutant-")
	if err != nil {
		return failed, err
	}
	defer os.RemoveAll(temporary)
	if err := os.Chmod(temporary, 0o755); err != nil {
		return failed, err
	}
	if os.Geteuid() == 0 {
		// Numbers as large as elsewhere, and a shell as the first process: what is that is not like the others.
		command = append([]string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--",
			"sh", "-c", `echo 20000 >/proc/sys/kernel/ns_last_pid; "$@"; exit $?`, "sh"}, command...)
	}
	ctx, stop := context.WithTimeout(context.Background(), limit)
	defer stop()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Dir, c.Stdout, c.Stderr = t.root, t.log, t.log
	c.Env = append(append(os.Environ(), "TMPDIR="+temporary), env...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGKILL) }
	c.WaitDelay = 5 * time.Second
	fmt.Fprintf(t.log, "$ %s\n", strings.Join(command, " "))
	err = c.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return tooLong, nil
	case err == nil:
		return passed, nil
	case asExit(err, &exit):
		return failed, nil
	}
	return failed, fmt.Errorf("run %s: %w", command[0], err)
}
