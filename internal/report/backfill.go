// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

const (
	// DefaultBackfillAfter is how long after a report slurmctld is not asked whether it still knows the job: MinJobAge is 300 s by default.
	DefaultBackfillAfter = 6 * time.Minute
	// backfillAtOnce bounds what one reporter takes up.
	backfillAtOnce = 50
	// knownAtMost is after how many jobs that slurmctld knows it is not asked for later ones: it forgets them in the order in which
	// they ended, but for arrays of which something still runs. These go to the end, so that they are not in the way of others.
	knownAtMost = 3
)

// backfill takes up records that were written, and that slurmctld may have overwritten since, when it does not know the job any
// longer, or keeps all jobs for longer than a record is worth trying. Their part stands, or is written once more. It says whether there
// may be more of them.
func (r *Reporter) backfill(ctx context.Context) (more bool, err error) {
	if r.Known == nil {
		return false, nil
	}
	records, err := usage.ListBackfill(r.Spool, time.Now().Add(-r.BackfillAfter), backfillAtOnce)
	if err != nil {
		return false, err
	}
	stillKnown := 0
	for _, rec := range records {
		if trusted.Age(rec.End) < r.RetryFor {
			known, err := r.Known(ctx, rec.Job)
			if err != nil { // the next reporter asks again
				r.Log.Info("it is not known whether slurmctld may write a job's text again", "job", rec.Job, "reason", err)
				return false, nil
			}
			if known {
				if err := usage.Later(r.Spool, rec); err != nil {
					return false, err
				}
				if stillKnown++; stillKnown == knownAtMost {
					return false, nil
				}
				continue
			}
		}
		if err := usage.Return(r.Spool, rec); err != nil {
			return false, err
		}
	}
	return len(records) == backfillAtOnce, nil
}
