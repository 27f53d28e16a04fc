// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// asVgpudDoes runs what vgpud's sample does, as it does: root without the right to give files away, or to open all.
func asVgpudDoes(t *testing.T, do func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this
		var none [2]unix.CapUserData
		err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
		if err == nil {
			err = do()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Users of one group are nobody to each other. The sampler that vgpud starts may not give files away.
func TestATimelineIsItsUsersAndRoots(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has files for other users")
	}
	const user, neighbour, group = 61001, 61002, 61000
	folder := t.TempDir()
	if err := os.Chmod(filepath.Dir(folder), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "timeline")
	reads := func(uid uint32) bool {
		cmd := exec.Command("cat", path)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: group}}
		return cmd.Run() == nil
	}
	sampled := func(at int64) {
		t.Helper()
		asVgpudDoes(t, func() error {
			f, err := Open(path, run, user)
			if err != nil {
				return err
			}
			return f.Add(look(at, 5))
		})
		if !reads(user) || reads(neighbour) {
			t.Errorf("at %d: its user reads it: %v; another of the group: %v", at, reads(user), reads(neighbour))
		}
		if st, err := os.Stat(path); err != nil || st.Sys().(*syscall.Stat_t).Uid != 0 || st.Mode()&0o022 != 0 {
			t.Errorf("others own or write it: %v, %v", st, err)
		}
	}
	sampled(1000)
	sampled(1010)
	if err := unix.Removexattr(path, "system.posix_acl_access"); err != nil {
		t.Fatal(err)
	}
	for i, mode := range []os.FileMode{0o640, 0o600} { // of an earlier release, and of its sampler under vgpud
		if err := os.Chown(path, 0, group*(1-i)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		sampled(1020 + int64(i)*10)
	}
}
