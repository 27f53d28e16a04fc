// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import "testing"

func TestMiB(t *testing.T) {
	for bytes, want := range map[uint64]int64{0: 0, 1: 1, 1 << 20: 1, 1<<20 + 1: 2, 3000 << 20: 3000, 1<<64 - 1: 1 << 44} {
		if got := MiB(bytes); got != want {
			t.Errorf("MiB(%d) = %d, want %d", bytes, got, want)
		}
	}
}
