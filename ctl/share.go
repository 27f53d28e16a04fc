// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// shareStatus is what a slice uses of its GPU's time; what is not known is null.
type shareStatus struct {
	GPUSeconds *float64 `json:"gpu_seconds"` // used
	// GPUTimeSource is "metered", by the library, "counted", by vgpud, "sampled", which is an estimate, or "": not known.
	GPUTimeSource usage.Source `json:"gpu_time_source,omitempty"`
	// UnknownSeconds is time of which nobody counted what was used. Inexact: gpu_seconds has a share of what several slices used together.
	UnknownSeconds   float64  `json:"unknown_seconds,omitempty"`
	Inexact          bool     `json:"inexact,omitempty"`
	WaitedSeconds    *float64 `json:"waited_seconds"` // held back by the share; threads add up
	SharePercent     *float64 `json:"share_percent"`  // of the GPU's time, over the seconds that follow
	ShareOverSeconds *float64 `json:"share_over_seconds"`
}

// shareOf is what one look tells: the share since the slice was granted. The time of a slice without a cap need not have been
// measured, and is not said to be none.
func shareOf(smPercent int, now timeline.Sample, held time.Duration) shareStatus {
	used, source := usage.Spent(smPercent, now)
	share := shareStatus{GPUTimeSource: source, UnknownSeconds: used.UnknownSeconds, Inexact: used.Inexact, WaitedSeconds: &used.WaitedSeconds}
	if source != "" {
		share.GPUSeconds = &used.GPUSeconds
		share.over(used.GPUSeconds, held)
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
	if s.GPUTimeSource == usage.Sampled || s.Inexact {
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
func timeText(t usage.Time, source usage.Source) string {
	var words []string
	switch {
	case source == usage.Sampled:
		words = append(words, fmt.Sprintf("some %.1f s of GPU time, by the driver's samples", t.GPUSeconds))
	case source == usage.Counted && t.Inexact:
		words = append(words, fmt.Sprintf("some %.1f s of GPU time, counted by vgpud and in part split of what several slices used together", t.GPUSeconds))
	case source == usage.Counted:
		words = append(words, fmt.Sprintf("%.1f s of GPU time, counted by vgpud", t.GPUSeconds))
	case t.GPUSeconds > 0:
		words = append(words, fmt.Sprintf("%.1f s of GPU time", t.GPUSeconds))
	}
	if t.UnknownSeconds >= 0.05 { // as it is written
		words = append(words, fmt.Sprintf("%.1f s of the time counted by nobody", t.UnknownSeconds))
	}
	if t.WaitedSeconds > 0 {
		words = append(words, fmt.Sprintf("%.1f s waited", t.WaitedSeconds))
	}
	return strings.Join(words, ", ")
}
