// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// shareStatus is what a slice uses of its GPU's time; what is not known is null.
type shareStatus struct {
	usage.Time
	SharePercent     *float64 `json:"share_percent"` // of the GPU's time, over the seconds that follow
	ShareOverSeconds *float64 `json:"share_over_seconds"`
}

// shareOf is what one look tells: the share since the slice was granted.
func shareOf(counted ledger.TimeDevice, held time.Duration) shareStatus {
	share := shareStatus{Time: usage.TimeOf(counted)}
	if share.GPUSeconds != nil {
		share.over(*share.GPUSeconds, held)
	}
	return share
}

func (s *shareStatus) over(usedSeconds float64, span time.Duration) {
	if span < time.Millisecond {
		return
	}
	percent := math.Round(min(max(usedSeconds/span.Seconds(), 0), 1)*1000) / 10
	seconds := math.Round(span.Seconds()*1e3) / 1e3
	s.SharePercent, s.ShareOverSeconds = &percent, &seconds
}

// sharesBetween puts into the second look the shares over the time since the first. Slices that were
// not there before keep what one look tells.
func sharesBetween(first, second nodeStatus, span time.Duration) {
	for i := range second.Slices {
		now := &second.Slices[i]
		for _, then := range first.Slices {
			if then.Job == now.Job && then.Restart == now.Restart && then.Device == now.Device &&
				then.GPUSeconds != nil && now.GPUSeconds != nil {
				now.over(*now.GPUSeconds-*then.GPUSeconds, span)
			}
		}
	}
}

// cells are a slice's GPU time and share for a table.
func (s sliceStatus) cells() (time, share string) {
	time, share = seconds(s.GPUSeconds), percent(s.SharePercent)
	if s.Inexact {
		time, share = "~"+time, "~"+share
	}
	return time, share
}

// seconds prints a time for a table.
func seconds(value *float64) string {
	if value == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", *value)
}

func percent(value *float64) string {
	if value == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", *value)
}

// timeText is GPU time in words; "" is none.
func timeText(t usage.Time) string {
	var words []string
	switch {
	case t.GPUSeconds == nil:
	case t.Inexact:
		words = append(words, fmt.Sprintf("some %.1f s of GPU time, in part split of what several slices used together", *t.GPUSeconds))
	default:
		words = append(words, fmt.Sprintf("%.1f s of GPU time", *t.GPUSeconds))
	}
	if t.UnknownSeconds >= 0.05 { // as it is written
		words = append(words, fmt.Sprintf("%.1f s of the time counted by nobody", t.UnknownSeconds))
	}
	return strings.Join(words, ", ")
}
