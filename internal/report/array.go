// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Array is the array of a job's number: Slurm uses the array's number also for its last task, and for the tasks that have not started.
type Array struct {
	Tasks int    // that the database knows; 0: it is none
	Shown string // which of them the number is: 100_20, 100_[5-20]
}

// Text names the task of the report; "" of a job that is no array, or was named as a task.
func (a Array) Text() string {
	if a.Tasks == 0 {
		return ""
	}
	number, _, _ := strings.Cut(a.Shown, "_")
	return fmt.Sprintf("%s is an array of %d tasks, and this is %s: name others as %s_N", number, a.Tasks, a.Shown, number)
}

// Job returns all runs of a job, the first one first, and the array that its number is.
func (s Slurm) Job(ctx context.Context, job uint32) (rows []Row, array Array, err error) {
	number := strconv.FormatUint(uint64(job), 10)
	all, err := s.ask(ctx, number)
	if err != nil {
		return nil, array, err
	}
	tasks := make(map[string]bool)
	for _, row := range all {
		if strings.HasPrefix(row.JobID, number+"_") {
			tasks[row.JobID] = true
		}
		if row.Job == job {
			rows = append(rows, row)
			array.Shown = row.JobID
		}
	}
	slices.SortFunc(rows, func(a, b Row) int { return a.Submit.Compare(b.Submit) })
	for id := range tasks {
		array.Tasks += tasksIn(strings.TrimPrefix(id, number+"_"))
	}
	if array.Tasks == 0 || !strings.HasPrefix(array.Shown, number+"_") {
		array = Array{}
	}
	return rows, array, nil
}

// tasksIn counts the tasks of 7, of [1-3,9%2] and of [0-30:10]; one whose form is another one counts once.
func tasksIn(list string) (count int) {
	list, _, _ = strings.Cut(strings.Trim(list, "[]"), "%")
	for part := range strings.SplitSeq(list, ",") {
		span, stepText, _ := strings.Cut(part, ":")
		first, last, _ := strings.Cut(span, "-")
		from, fromErr := strconv.ParseUint(first, 10, 32)
		to, toErr := strconv.ParseUint(last, 10, 32)
		step, stepErr := strconv.ParseUint(stepText, 10, 32)
		if stepErr != nil || step == 0 {
			step = 1
		}
		if fromErr != nil || toErr != nil || to < from {
			from, to = 0, 0
		}
		count += int((to-from)/step) + 1
	}
	return count
}
