// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/slurm-vgpu/slurm-vgpu/internal/devfiles"

// closeFiles closes device files of GPUs that something has opened since the node was booted, as nvidia-modprobe does where
// it may. Where they cannot be closed, jobs with GPUs are refused: they could not be given files of their own, or everybody
// else could use theirs.
func (p *prolog) closeFiles() {
	if !p.cfg.ClosesFiles() {
		return
	}
	set := p.cfg.DeviceSet()
	wrong, err := wrongFiles(set)
	if err == nil && len(wrong) == 0 {
		return
	}
	problem := set.Close() // which may be a group that is not known, with everything closed
	left, err := wrongFiles(set)
	switch {
	case err != nil:
		p.files = err
	case len(left) > 0:
		p.files = problem
	case problem != nil:
		p.log.Error("the GPUs' device files are closed to all but root", "reason", problem)
	}
	if p.files != nil {
		p.log.Error("the GPUs' device files are not all closed", "files", left, "reason", p.files)
		return
	}
	p.log.Warn("device files of GPUs were open, or steps had none, and are closed again", "files", wrong, "open_since", left)
}

func wrongFiles(set devfiles.Set) (paths []string, err error) {
	files, err := set.Look()
	for _, file := range files {
		if file.Wrong() {
			paths = append(paths, file.Path)
		}
	}
	return paths, err
}
