// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package jobreport

import (
	"fmt"
	"strings"
	"time"
)

// limit is the run's time limit; 0: none, or not known.
func (r Run) limit() time.Duration { return time.Duration(r.LimitS) * time.Second }

func (r Run) ofLimit() string {
	if r.LimitS <= 0 {
		return ""
	}
	return " of " + Length(r.limit())
}

// exitText is about a run that did not end with 0.
func (r Run) exitText() string {
	code, signal, _ := strings.Cut(r.ExitCode, ":")
	switch {
	case signal != "" && signal != "0":
		return ", by signal " + signal
	case code != "" && code != "0":
		return ", exit code " + code
	}
	return ""
}

// summary is one line: the parts of GPU time, memory and time limit that were used; "" where nothing is counted.
func (r Run) summary(now time.Time) string {
	if len(r.Slices) == 0 || r.Slices[0].Whole {
		return ""
	}
	var share, entitled, fullest float64
	timed := true
	top := r.Slices[0]
	for _, s := range r.Slices {
		timed = timed && s.SharePercent != nil
		if timed {
			share, entitled = share+*s.SharePercent, entitled+float64(s.MostPercent())
		}
		if part := float64(s.Peak()) / float64(max(1, s.MostMiB())); part > fullest {
			fullest, top = part, s
		}
	}
	words := "GPU time not known"
	if timed && entitled > 0 {
		words = fmt.Sprintf("%.0f %% of its GPU time", 100*share/entitled)
	}
	if most := top.MostMiB(); most > 0 {
		words += fmt.Sprintf(", %.0f %% of its memory (peak %s)", 100*fullest, ofMemory(top.Peak(), most))
	}
	if r.LimitS > 0 {
		words += fmt.Sprintf(", %.0f %% of its time limit", 100*r.Wall(now).Seconds()/r.limit().Seconds())
	}
	if r.Running() {
		return "so far: " + words
	}
	return "used: " + words
}
