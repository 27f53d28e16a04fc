// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package devfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// coverName is the page that stands over the driver's, in the folder of what steps are given.
const coverName = "params"

// Hold keeps the driver's tools from opening the files again until the driver is loaded anew or the node is. Not nvidia-modprobe alone does:
// every program of root's that starts NVML or CUDA gives the files their modes of NVreg_DeviceFileMode (seen with driver 580.159), unless the
// driver's page says that it may not. Where the module's parameter does not, a copy of the page that does is bound over it, as NVIDIA's
// container toolkit does in containers. It is the mount namespace's in which this is called, and of those made from it.
func (s Set) Hold() error {
	if modifies, known := s.DriverModifies(); !modifies || !known {
		return nil
	}
	text, err := read(s.paramsPage())
	if err != nil {
		return err
	}
	var copied strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, modifyKey) {
			line = modifyKey + " 0\n"
		}
		copied.WriteString(line)
	}
	cover := filepath.Join(s.StepDir, coverName)
	if err := trusted.WriteFile(cover, []byte(copied.String()), 0o444); err != nil {
		return fmt.Errorf("write a page for the driver: %w", err)
	}
	if err := unix.Mount(cover, s.paramsPage(), "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s on %s: %w", cover, s.paramsPage(), err)
	}
	const flags = unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := unix.Mount("", s.paramsPage(), "", flags, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", s.paramsPage(), err)
	}
	return nil
}

// letGo takes away what Hold has bound, and nothing else.
func (s Set) letGo() error {
	cover := filepath.Join(s.StepDir, coverName)
	ours, err := lstat(cover)
	if err != nil || s.Proc == "" { // there is none
		return nil
	}
	if over, err := lstat(s.paramsPage()); err == nil && over.Dev == ours.Dev && over.Ino == ours.Ino {
		if err := unix.Unmount(s.paramsPage(), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return &os.PathError{Op: "unmount", Path: s.paramsPage(), Err: err}
		}
	}
	if err := os.Remove(cover); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (s Set) paramsPage() string { return filepath.Join(s.Proc, "driver/nvidia/params") }
