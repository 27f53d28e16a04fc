// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// prologTime is more than vgpu-prolog gives the controller and the lock together.
const prologTime = 2 * time.Minute

// runProlog runs vgpu-prolog for a step that found nothing of it. It may run beside slurmd's own,
// which then finds its work done. ran is false where no prolog ever ran on this node: there is
// nothing that we could know about the job. said is what the prolog could not write down.
func runProlog(s Step) (said string, ran bool, err error) {
	command, err := grant.ReadProlog(s.RunDir.Prolog())
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", true, fmt.Errorf("slurmd has not run vgpu-prolog for job %d, and the step could not run it either: %w", s.Job, err)
	}
	// Of a job's first step, as slurmd would say it; the controller's word about the job is what counts.
	asked := s.Request
	if len(asked) > request.MaxWireBytes {
		asked = ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), prologTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, command.Argv[0], command.Argv[1:]...)
	cmd.Dir = "/"
	cmd.Env = append([]string{
		fmt.Sprint("SLURM_JOB_ID=", s.Job), fmt.Sprint("SLURM_JOB_UID=", s.UID), fmt.Sprint("SLURM_JOB_GID=", s.GID),
		"SPANK_" + request.ControlRequest + "=" + asked,
	}, command.Env...)
	var out bytes.Buffer
	cmd.Stdout = &out // root's own program, which writes a line at most
	if err := cmd.Run(); err != nil {
		return "", true, fmt.Errorf("slurmd has not run vgpu-prolog for job %d, and the step could not run it either: %w", s.Job, err)
	}
	return out.String(), true, nil
}
