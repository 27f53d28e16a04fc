// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// identity names a process for good: a pid alone can be reused.
type identity struct {
	pid   int
	start string // field 22 of /proc/PID/stat
}

func (id identity) String() string { return fmt.Sprintf("%d %s", id.pid, id.start) }

// identify returns the identity and parent of a running process; zombies count as gone.
func identify(pid int) (id identity, parent int, alive bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return identity{}, 0, false
	}
	// The name may hold spaces and parentheses; the fields start after the last one.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return identity{}, 0, false
	}
	parent, _ = strconv.Atoi(fields[1])
	return identity{pid, fields[19]}, parent, fields[0] != "Z" && fields[0] != "X"
}

func (id identity) alive() bool {
	now, _, alive := identify(id.pid)
	return alive && now == id
}

// signal sends through a pidfd and checks who is behind it first, so that no other process that
// got the pid meanwhile can be hit.
func (id identity) signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(id.pid, 0)
	if errors.Is(err, unix.ENOSYS) {
		if id.alive() {
			return unix.Kill(id.pid, sig)
		}
		return unix.ESRCH
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !id.alive() {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

func allPIDs() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// descendants lists the living processes below root, which itself is not among them.
func descendants(root int) []identity {
	parents := map[int]int{}
	ids := map[int]identity{}
	for _, pid := range allPIDs() {
		if id, parent, alive := identify(pid); alive {
			parents[pid], ids[pid] = parent, id
		}
	}
	var below []identity
	for pid, id := range ids {
		for at, hops := parents[pid], 0; at > 0 && hops < 1000; at, hops = parents[at], hops+1 {
			if at == root {
				below = append(below, id)
				break
			}
		}
	}
	return below
}

// endDescendants kills and reaps until nothing is left below this process.
func endDescendants(deadline time.Duration) error {
	end := time.Now().Add(deadline)
	for {
		below := descendants(os.Getpid())
		for _, id := range below {
			_ = id.signal(unix.SIGKILL) // gone already is what we want
		}
		for {
			pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if errors.Is(err, unix.ECHILD) {
				return nil
			}
			if err != nil || pid == 0 {
				break
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("end what the cluster started: %d processes outlive SIGKILL: %v", len(below), below)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// marked lists living processes that belong to the cluster in home though nobody is there to ask
// for descendants: their environment holds an assignment that only the cluster makes, or they live
// in its mount namespace, or in one made from that.
func marked(home string) []identity {
	mark := []byte("\x00" + homeEnv + "=" + home + "\x00")
	mount := []byte(" " + filepath.Join(home, privateMount) + " ")
	var found []identity
	for _, pid := range allPIDs() {
		if pid == os.Getpid() {
			continue
		}
		proc := filepath.Join("/proc", strconv.Itoa(pid))
		environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
		mounts, _ := os.ReadFile(filepath.Join(proc, "mountinfo"))
		if !bytes.Contains(append([]byte{0}, environ...), mark) && !bytes.Contains(mounts, mount) {
			continue
		}
		if id, _, alive := identify(pid); alive {
			found = append(found, id)
		}
	}
	return found
}

// recorded reads identities from a file with "name pid start" on each line.
func recorded(path string) map[string][]identity {
	data, _ := os.ReadFile(path)
	ids := map[string][]identity{}
	for line := range strings.Lines(string(data)) {
		var name string
		var id identity
		if _, err := fmt.Sscan(line, &name, &id.pid, &id.start); err == nil {
			ids[name] = append(ids[name], id)
		}
	}
	return ids
}

func record(home, name string, pid int) error {
	id, _, alive := identify(pid)
	if !alive {
		return fmt.Errorf("record %s: process %d ended at once", name, pid)
	}
	file, err := os.OpenFile(filepath.Join(home, pidsFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, name, id)
	return errors.Join(err, file.Close())
}
