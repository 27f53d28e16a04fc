// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// Bucket is for how long one of the latency class may go first. It fills at the slice's share, so that in any time others have all that is left
// of theirs but for one burst. Once it is empty the slice is one like others until it is half full.
type Bucket struct {
	Share float64 // of 1
	Burst time.Duration
	Left  time.Duration // below 0: used more, between two looks

	spent bool
}

// NewBucket is full. One that goes on from what a page says (Resume) is not believed to be more than that.
func NewBucket(share float64, burst time.Duration) Bucket {
	return Bucket{Share: share, Burst: burst, Left: burst}
}

// Resume goes on from what was left when vgpud ended. Nobody knows what was used since, so nothing is added.
func (b *Bucket) Resume(left time.Duration) {
	b.Left = min(b.Burst, max(-b.Burst, left))
	b.spent = b.Left < b.Burst/2
}

// Pass takes what was used in a time, and says whether there is credit.
func (b *Bucket) Pass(gone, used time.Duration) bool {
	b.Left = min(b.Burst, max(-b.Burst, b.Left+time.Duration(b.Share*float64(gone))-used))
	switch {
	case b.Left <= 0:
		b.spent = true
	case 2*b.Left >= b.Burst:
		b.spent = false
	}
	return !b.spent
}
