// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// hiddenRun is what of /run the cluster must not see: services of the host that would answer for
// its copies, run directories of another slurm-vgpu, and what other users' logins have there.
var hiddenRun = map[string]bool{
	"slurm-vgpu": true, "munge": true, "mysqld": true, "slurm": true, "slurmctld": true,
	"slurmd": true, "slurmdbd": true, "nscd": true, "user": true,
}

// privateMount is where, in the folder, the copies are mounted; it also tells the namespace apart.
const privateMount = "mnt"

// enterPrivate gives this process, alone in its mount namespace, an /etc, a /run, a /var/spool and a /dev of its own.
func enterPrivate(home string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		if err := enterRootMount(home); err != nil {
			return err
		}
	}
	base := filepath.Join(home, privateMount)
	if err := os.MkdirAll(base, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("vgpu-cluster", base, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", base, err)
	}
	etc, run := filepath.Join(base, "etc"), filepath.Join(base, "run")
	if out, err := exec.Command("cp", "-a", "/etc", etc).CombinedOutput(); err != nil {
		return fmt.Errorf("copy /etc: %w: %s", err, out)
	}
	// An installed slurm-vgpu or Slurm of the host must not leak in.
	for _, name := range []string{"ld.so.preload", "slurm-vgpu", "slurm", "munge"} {
		if err := os.RemoveAll(filepath.Join(etc, name)); err != nil {
			return err
		}
	}
	if err := nameHost(filepath.Join(etc, "hosts")); err != nil {
		return err
	}
	if err := fillRun(run); err != nil {
		return err
	}
	spool := filepath.Join(base, "spool") // where the last good configuration of /etc/slurm-vgpu is kept
	if err := os.Mkdir(spool, 0o755); err != nil {
		return err
	}
	if err := os.MkdirAll("/var/spool", 0o755); err != nil {
		return err
	}
	for from, to := range map[string]string{etc: "/etc", run: "/run", spool: "/var/spool"} {
		if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s on %s: %w", from, to, err)
		}
	}
	return enterDev(filepath.Join(base, "dev"))
}

// nameHost makes this host's name an address of the loopback interface, whatever it is outside:
// Slurm looks it up, and in a container or chroot it may have none.
func nameHost(hosts string) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	short, _, _ := strings.Cut(host, ".")
	before, err := os.ReadFile(hosts)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	line := fmt.Sprintf("127.0.0.1 localhost %s %s\n", host, short)
	return os.WriteFile(hosts, append([]byte(line), before...), 0o644)
}

func fillRun(run string) error {
	entries, err := os.ReadDir("/run")
	if err != nil {
		return err
	}
	if err := os.Mkdir(run, 0o755); err != nil {
		return err
	}
	for _, entry := range entries {
		from, to := filepath.Join("/run", entry.Name()), filepath.Join(run, entry.Name())
		if hiddenRun[entry.Name()] || !entry.IsDir() {
			continue
		}
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s on %s: %w", from, to, err)
		}
	}
	return nil
}

// enterRootMount is for a chroot whose root is a plain folder: propagation can only be changed on
// a mount, so "/" is bound where it is one, and that becomes the root. The mount exists in this
// namespace alone unless the folder's own mount is shared; outer unmounts it in that case.
func enterRootMount(home string) error {
	root := home + ".root"
	if err := os.Mkdir(root, 0o755); err != nil && !os.IsExist(err) {
		return err
	}
	if err := unix.Mount("/", root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind / on %s: %w", root, err)
	}
	if err := unix.Mount("", root, "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("keep mounts below %s from spreading: %w", root, err)
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	if err := unix.Chroot(root); err != nil {
		return fmt.Errorf("chroot to %s: %w", root, err)
	}
	return os.Chdir(here)
}
