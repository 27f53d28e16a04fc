// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// clockSkew is how much the clocks of a node and of the controller may differ. Between two runs Slurm lets more
// time pass: 120 s by default.
const clockSkew = 2 * time.Second

var (
	errNotYet = errors.New("the run is not in the accounting database yet")
	// errNever is about a database that has a later run of the job, and so should have this one.
	errNever = errors.New("the accounting database has no row of this run")
)

// rowOf finds the row of a record's run. A later run's is never taken for it.
func rowOf(rows []Row, rec usage.Record) (row Row, isNewest bool, err error) {
	var mine []Row
	for _, row := range rows {
		if row.Job == rec.Job {
			mine = append(mine, row)
		}
	}
	if len(mine) == 0 {
		return Row{}, false, ErrNoRow
	}
	found := -1
	for i, row := range mine {
		if isRowOf(row, rec) && (found < 0 || distance(row, rec) < distance(mine[found], rec)) {
			found = i
		}
	}
	last := newest(mine)
	switch {
	case found >= 0:
		row := continued(mine, mine[found])
		return row, row.Submit.Equal(last.Submit), nil
	case !last.Start.IsZero() && last.Start.After(rec.End.Add(clockSkew)):
		return Row{}, false, errNever
	}
	return Row{}, false, fmt.Errorf("%w: its last one is %s", errNotYet, last.State)
}

// continued is the row in which a run goes on whose job was resized, as by a node that it lost: the first part stays RESIZING for good, and
// the next one is submitted and begins when that ends (as_mysql_job.c, resize_time).
func continued(rows []Row, row Row) Row {
	for range rows {
		next := slices.IndexFunc(rows, func(r Row) bool {
			return strings.HasPrefix(row.State, "RESIZING") && !row.End.IsZero() && r.Start.Equal(row.End) && r.Submit.Equal(row.End) && !r.Submit.Equal(row.Submit)
		})
		if next < 0 {
			break
		}
		row = rows[next]
	}
	return row
}

// isRowOf goes by the time of submission, which is another one for each run. Where that is not known, the run
// was on that node and began while the row was running.
func isRowOf(row Row, rec usage.Record) bool {
	if !rec.Submitted.IsZero() {
		return row.Submit.Equal(rec.Submitted)
	}
	if row.Start.IsZero() || row.NodeList != "" && !slurm.HostlistContains(row.NodeList, rec.Node) {
		return false
	}
	return !rec.Start.Before(row.Start.Add(-clockSkew)) && (row.End.IsZero() || !rec.Start.After(row.End.Add(clockSkew)))
}

// IsOfGrant says that the row is that of a run which still has its slices on a node. The database has its end before the node
// has ended its processes: the state is COMPLETING meanwhile.
func (r Row) IsOfGrant(job uint32, node string, submitted, since time.Time) bool {
	if submitted.IsZero() && r.Ended && since.Truncate(time.Second).After(r.End) { // the next run of a requeued job
		return false
	}
	return r.IsOf(usage.Record{Job: job, Node: node, Submitted: submitted, Start: since})
}

func distance(row Row, rec usage.Record) time.Duration { return rec.Start.Sub(row.Start).Abs() }

// IsOf says that the row is that of a record's run.
func (r Row) IsOf(rec usage.Record) bool { return r.Job == rec.Job && isRowOf(r, rec) }
