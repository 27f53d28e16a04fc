// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// shareStatus is the part of its GPU's time that a slice uses; what is not known is null.
type shareStatus struct {
	SharePercent     *float64 `json:"share_percent"` // of the GPU's time, over the seconds that follow
	ShareOverSeconds *float64 `json:"share_over_seconds"`
}

// shareOf is the share that a time is of a span.
func shareOf(used usage.Time, span time.Duration) (s shareStatus) {
	if used.GPUSeconds == nil || span < time.Millisecond {
		return s
	}
	percent := math.Round(min(max(*used.GPUSeconds/span.Seconds(), 0), 1)*1000) / 10
	seconds := math.Round(span.Seconds()*1e3) / 1e3
	return shareStatus{&percent, &seconds}
}

// sharesBetween puts into the second look the shares over the time since the first. Slices that were
// not there before keep what one look tells.
func sharesBetween(first, second nodeStatus, span time.Duration) {
	for i := range second.Slices {
		now := &second.Slices[i]
		for _, then := range first.Slices {
			if then.name() != now.name() {
				continue
			}
			if share := shareOf(now.Time.Since(then.Time), span); share.SharePercent != nil {
				now.shareStatus = share
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
		words = append(words, fmt.Sprintf("%.1f s of the time not counted", t.UnknownSeconds))
	}
	return strings.Join(words, ", ")
}
