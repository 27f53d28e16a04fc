// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package trusted

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Folder refuses a folder that another user than root, or than the one who runs this, can change.
func Folder(path string) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("use %s: %w: it is not a directory", path, ErrUntrusted)
	case st.Uid != 0 && st.Uid != uint32(os.Geteuid()):
		return fmt.Errorf("use %s: %w: its owner is uid %d", path, ErrUntrusted, st.Uid)
	case st.Mode&0o022 != 0:
		return fmt.Errorf("use %s: %w: its mode is %#o, others can write there", path, ErrUntrusted, st.Mode&0o7777)
	}
	return nil
}
