// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package stored says how old a stored time is. The clock may have been set back since it was written: a time that lies ahead counts
// as very old, so that work that waits for its age goes on at once, and not when the clock is there.
package stored

import (
	"math"
	"time"
)

// Unknown is the age of a time that lies ahead.
const Unknown = time.Duration(math.MaxInt64)

// AgeAt is how long before now a stored time was.
func AgeAt(now, when time.Time) time.Duration {
	if when.After(now) {
		return Unknown
	}
	return now.Sub(when)
}

// Age is the same by the clock of this moment.
func Age(when time.Time) time.Duration { return AgeAt(time.Now(), when) }
