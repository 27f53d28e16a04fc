// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import "slices"

// queue is the jobs of a kind that have not begun, in the order of submission. Those that have are taken out now and then.
type queue struct {
	jobs    []*job
	dropped int
}

func (q *queue) add(j *job) { q.jobs = append(q.jobs, j) }

// drop is called for each job that waits no more.
func (q *queue) drop() {
	q.dropped++
	if q.dropped > 64 && q.dropped > len(q.jobs)/2 {
		q.jobs = slices.DeleteFunc(q.jobs, func(j *job) bool { return j.stands != queued && j.stands != away })
		q.dropped = 0
	}
}

// first is the first of the oldest jobs in the queue that will do; nil: none of so many.
func (q *queue) first(atMost int, will func(*job) bool) *job {
	for _, j := range q.jobs {
		if j.stands != queued {
			continue
		}
		if will(j) {
			return j
		}
		if atMost--; atMost == 0 {
			return nil
		}
	}
	return nil
}

// olderWaits says that an older job that may go to any node waits: there is nothing for a younger one then.
func (q *queue) olderWaits(j *job) bool {
	older := q.first(looked, func(o *job) bool { return o == j || o.not.size == 0 })
	return older != nil && older.id < j.id
}
