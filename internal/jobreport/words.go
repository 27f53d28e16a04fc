// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package jobreport

import (
	"fmt"
	"time"
)

// memory is an amount of it for people, in GiB only if it was granted so.
func memory(mib int64) string {
	if inGiB(mib) {
		return fmt.Sprintf("%d GiB", mib/1024)
	}
	return fmt.Sprintf("%d MiB", mib)
}

// ofMemory is a part of an amount, in its unit.
func ofMemory(part, whole int64) string {
	if inGiB(whole) {
		return fmt.Sprintf("%.1f of %s", float64(part)/1024, memory(whole))
	}
	return fmt.Sprintf("%d of %s", part, memory(whole))
}

func inGiB(mib int64) bool { return mib >= 1024 && mib%1024 == 0 }

// clock is a time of day, with the day where that is another one than the day of near.
func clock(at, near time.Time, loc *time.Location) string {
	if at.Unix() <= 0 {
		return unknown
	}
	at, near = at.In(loc), near.In(loc)
	if at.YearDay() == near.YearDay() && at.Year() == near.Year() {
		return at.Format("15:04")
	}
	return at.Format("2006-01-02 15:04")
}

// unknown stands for a time that nobody has filled in, and longest is shorter than the time since then.
const (
	unknown = "?"
	longest = 40 * 365 * 24 * time.Hour
)

// Length is a duration as squeue prints it: 1-02:03:04, 2:03:04, 3:04.
func Length(d time.Duration) string {
	if d > longest {
		return unknown
	}
	seconds := int64(max(d, 0) / time.Second)
	days, hours, minutes := seconds/86400, seconds/3600%24, seconds/60%60
	switch {
	case days > 0:
		return fmt.Sprintf("%d-%02d:%02d:%02d", days, hours, minutes, seconds%60)
	case hours > 0:
		return fmt.Sprintf("%d:%02d:%02d", hours, minutes, seconds%60)
	}
	return fmt.Sprintf("%d:%02d", minutes, seconds%60)
}
