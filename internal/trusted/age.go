// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package trusted

import (
	"math"
	"time"
)

// UnknownAge is the age of a time that lies ahead, as the clock may have been set back since it was written. It counts as very old, so that work that waits for
// its age goes on at once, and not when the clock is there.
const UnknownAge = time.Duration(math.MaxInt64)

// meanwhile is how much later than now a time may be that was stored since now was asked for.
const meanwhile = time.Second

// AgeAt is how long before now a time was that a file has.
func AgeAt(now, when time.Time) time.Duration {
	switch age := now.Sub(when); {
	case age <= -meanwhile:
		return UnknownAge
	default:
		return max(0, age)
	}
}

// Age is the same by the clock of this moment.
func Age(when time.Time) time.Duration { return AgeAt(time.Now(), when) }
