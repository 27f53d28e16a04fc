// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

const (
	// DefaultAgain is how long after a job's end slurmctld is not asked whether it still knows it: MinJobAge is 300 s by default.
	DefaultAgain = 6 * time.Minute
	// againAtOnce bounds how often it is asked by one reporter.
	againAtOnce = 50
)

// again takes up records that were written, and that slurmctld may have overwritten since, when it does not know the job any
// longer. Their part stands, or is written once more.
func (r *Reporter) again(ctx context.Context) error {
	records, err := usage.ListAgain(r.Spool)
	if err != nil || r.Known == nil {
		return err
	}
	for _, rec := range records[:min(len(records), againAtOnce)] {
		if time.Since(rec.End) < r.Again { // oldest first
			break
		}
		known, err := r.Known(ctx, rec.Job)
		if err != nil { // the next reporter asks again
			r.Log.Info("it is not known whether slurmctld may write a job's text again", "job", rec.Job, "reason", err)
			break
		}
		if known {
			continue
		}
		if err := usage.Return(r.Spool, rec); err != nil {
			return err
		}
	}
	return nil
}
