// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import "testing"

func TestTasksAreCounted(t *testing.T) {
	for list, want := range map[string]int{"7": 1, "[5-20%2]": 16, "[1-3,9]": 4, "[0-30:10]": 4, "[1,3,...]": 3, "": 1, "[9-1]": 1, "[1-x:0]": 1} {
		if got := tasksIn(list); got != want {
			t.Errorf("%s: %d tasks, want %d", list, got, want)
		}
	}
}
