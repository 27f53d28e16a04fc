// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// Bucket is for how long a slice of the latency class may go first. The bucket fills at the slice's share, so that in any time the others have their shares
// but for one burst. Once the bucket is empty the slice is treated like others until the bucket is half full.
type Bucket struct {
	Share float64 // of 1
	Burst time.Duration
	Left  time.Duration // below 0: the slice used more, between two looks

	spent bool
}

// NewBucket is full. A page's figure (Resume) never makes it fuller than that.
func NewBucket(share float64, burst time.Duration) Bucket {
	return Bucket{Share: share, Burst: burst, Left: burst}
}

// Resume goes on from the credit that was left when vgpud ended. Use since then is not known, so nothing is added.
func (b *Bucket) Resume(left time.Duration) {
	b.Left = min(b.Burst, max(-b.Burst, left))
	b.spent = b.Left < b.Burst/2
}

// Pass takes the use in a time, and says whether there is credit.
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
