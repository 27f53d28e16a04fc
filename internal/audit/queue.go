// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// Queue waits until no other audit of this node is under way. Where one waits already, nil: it will look after now,
// which is as good. So however many jobs end at once, one audit runs and one waits.
func Queue(ctx context.Context, run rundir.Dir) (*os.File, error) {
	at, cancel := context.WithCancel(ctx)
	cancel()
	next, err := state.LockFile(at, run.AuditNext())
	switch {
	case errors.Is(err, state.ErrLockTimeout) && ctx.Err() == nil:
		return nil, nil
	case err != nil:
		return nil, err
	}
	defer next.Close()
	turn, err := state.LockFile(ctx, run.AuditLock())
	if err != nil {
		return nil, err
	}
	now := time.Now()
	_ = os.Chtimes(run.AuditLock(), now, now) // for doctor alone
	return turn, nil
}
