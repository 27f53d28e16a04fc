// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import "errors"

var (
	// ErrVersion means that a newer release wrote the state file. It is left as it is.
	ErrVersion = errors.New("the state file is of another version")
	// ErrCorrupt means that the state file is torn, empty or foreign. Writers move it aside.
	ErrCorrupt = errors.New("the state file is damaged")
)
