// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Home is the folder that holds everything of one cluster.
type Home string

// Path names a file below the folder.
func (h Home) Path(elem ...string) string {
	return filepath.Join(append([]string{string(h)}, elem...)...)
}

// installed is the prefix of programs that this machine has installed, as packages are, if those are to be tried: "" is the folder.
var installed = os.Getenv("VGPU_CLUSTER_PREFIX")

// prefixed names a file as `make install` would, with the folder for its prefix, or one that is installed.
func (h Home) prefixed(elem ...string) string {
	return filepath.Join(append([]string{cmp.Or(installed, string(h))}, elem...)...)
}

// Program is where a program or library of ours is.
func (h Home) Program(name string) string {
	switch name {
	case "vgpuctl", "vgpu-exporter":
		return h.prefixed("bin", name)
	case "vgpu-gres", "vgpud":
		return h.prefixed("sbin", name)
	}
	if strings.HasPrefix(name, "spank_vgpu") {
		return h.Path("lib", name)
	}
	return h.prefixed("lib", "slurm-vgpu", name)
}

// InPlace says that mount namespaces are forbidden here and the host's own /etc is in use.
func (h Home) InPlace() bool {
	_, err := os.Stat(h.Path(inPlace))
	return err == nil
}

const homePattern = "vgpu-cluster-"

// homeParent is readable by everyone and not a tmpfs on most systems; databases go there.
const homeParent = "/var/tmp"

func newHome() (Home, error) {
	dir, err := os.MkdirTemp(homeParent, homePattern)
	if err != nil {
		return "", err
	}
	// Ordinary users start programs and reach sockets below it.
	return Home(dir), os.Chmod(dir, 0o755)
}

// remove deletes the folder and what an in-place cluster made outside of it. It never descends
// into something that is mounted.
func (h Home) remove() error {
	var errs []error
	if h.InPlace() {
		errs = append(errs, h.undoInPlace())
	}
	if root := string(h) + ".root"; isDir(root) {
		// Only there when mounts spread to us; detached, so that nothing below is touched.
		_ = unix.Unmount(root, unix.MNT_DETACH)
		// A keeper whose own root it is cannot remove it; the next start does.
		if err := os.Remove(root); !errors.Is(err, unix.EBUSY) {
			errs = append(errs, err)
		}
	}
	for _, mount := range mountsBelow(string(h)) {
		if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil {
			return errors.Join(append(errs, fmt.Errorf("%s stays: unmount %s: %w", h, mount, err))...)
		}
	}
	return errors.Join(append(errs, os.RemoveAll(string(h)))...)
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// mountsBelow lists mount points at or below dir, innermost first.
func mountsBelow(dir string) []string {
	data, _ := os.ReadFile("/proc/self/mountinfo")
	var found []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && (fields[4] == dir || strings.HasPrefix(fields[4], dir+"/")) {
			found = append([]string{fields[4]}, found...)
		}
	}
	return found
}

const (
	usersFile   = "users-created"   // names, one a line
	preloadFile = "preload-created" // exists: /etc/ld.so.preload was not there before
)

// undoInPlace removes users that we made, and an /etc/ld.so.preload and run directory that came
// into being meanwhile and that nobody uses.
func (h Home) undoInPlace() error {
	var errs []error
	names, _ := os.ReadFile(h.Path(usersFile))
	for name := range strings.FieldsSeq(string(names)) {
		if out, err := exec.Command("userdel", name).CombinedOutput(); err != nil {
			errs = append(errs, fmt.Errorf("userdel %s: %w: %s", name, err, out))
		}
	}
	if _, err := os.Stat(h.Path(preloadFile)); err == nil {
		if info, err := os.Lstat("/etc/ld.so.preload"); err == nil && info.Size() == 0 {
			errs = append(errs, os.Remove("/etc/ld.so.preload"))
		}
		_ = os.Remove("/run/slurm-vgpu/self") // these go only when empty
		_ = os.Remove("/run/slurm-vgpu")
	}
	return errors.Join(errs...)
}

func homes() []Home {
	dirs, _ := filepath.Glob(filepath.Join(homeParent, homePattern+"*"))
	var found []Home
	for _, dir := range dirs {
		var st unix.Stat_t
		// Everyone may make such a folder; only root's own are believed.
		if unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Uid == 0 &&
			st.Mode&0o022 == 0 && !strings.HasSuffix(dir, ".root") {
			found = append(found, Home(dir))
		}
	}
	return found
}

// Stop ends a cluster that another process keeps and waits until nothing of it is left.
func Stop(home Home) error {
	ids := recorded(home.Path(pidsFile))
	for _, role := range []string{"outer", "keeper"} {
		for _, id := range ids[role] {
			if id.signal(unix.SIGTERM) != nil {
				continue
			}
			for end := time.Now().Add(40 * time.Second); id.alive(); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					return fmt.Errorf("stop %s: its %s process %d does not end", home, role, id.pid)
				}
			}
		}
	}
	if isDir(string(home)) {
		return clearHome(home)
	}
	return nil
}

// ClearStale removes what clusters left whose keepers were all killed.
func ClearStale() error {
	var errs []error
	for _, home := range homes() {
		info, err := os.Stat(string(home))
		if err != nil || recordedAlive(string(home), "outer") || recordedAlive(string(home), "keeper") {
			continue
		}
		// A cluster that is just being made has not recorded itself yet.
		if time.Since(info.ModTime()) < 10*time.Second && len(recorded(home.Path(pidsFile))) == 0 {
			continue
		}
		errs = append(errs, clearHome(home))
	}
	roots, _ := filepath.Glob(filepath.Join(homeParent, homePattern+"*.root"))
	for _, root := range roots {
		if !isDir(strings.TrimSuffix(root, ".root")) && len(mountsBelow(root)) == 0 {
			_ = os.Remove(root) // empty, or not ours: then it stays
		}
	}
	return errors.Join(errs...)
}

// clearHome ends the processes that a cluster without keepers left, and removes its folder.
func clearHome(home Home) error {
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left := marked(string(home))
		for _, ids := range recorded(home.Path(pidsFile)) {
			for _, id := range ids {
				if id.alive() && id.pid != os.Getpid() {
					left = append(left, id)
				}
			}
		}
		for _, id := range left {
			_ = id.signal(unix.SIGKILL)
		}
		if len(left) == 0 {
			return home.remove()
		}
		if time.Now().After(end) {
			return fmt.Errorf("clear %s: processes %v do not end", home, left)
		}
	}
}
