// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import "errors"

var (
	// ErrLockTimeout means that others held the lock for all the time that we were ready to wait.
	ErrLockTimeout = errors.New("the node's state is locked by another process")
	// ErrVersion means that a newer release wrote the state file. It is left as it is.
	ErrVersion = errors.New("the state file is of another version")
	// ErrCorrupt means that the state file is torn, empty or foreign. Writers move it aside.
	ErrCorrupt = errors.New("the state file is damaged")
	// ErrRunDir means that the run directory cannot be used: it is missing and cannot be made, or
	// others than root could change what is in it.
	ErrRunDir = errors.New("the run directory cannot be used")
)
