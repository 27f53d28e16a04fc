// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package trusted_test

import (
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

func TestATimeThatLiesAheadIsOld(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	for _, tt := range []struct {
		name   string
		stored time.Time
		want   time.Duration
	}{
		{"now", now, 0},
		{"a minute ago", now.Add(-time.Minute), time.Minute},
		{"never", time.Time{}, now.Sub(time.Time{})},
		{"since now was asked for", now.Add(5 * time.Millisecond), 0},
		{"a second ahead", now.Add(time.Second), trusted.UnknownAge},
		{"ten hours ahead", now.Add(10 * time.Hour), trusted.UnknownAge},
	} {
		if got := trusted.AgeAt(now, tt.stored); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
