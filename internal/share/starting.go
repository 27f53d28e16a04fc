// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// Starting bounds for how long processes that begin shorten the rounds of all. Its zero value has all that can be saved.
type Starting struct {
	spent, at time.Duration
	is        bool
}

// Afford says whether a process that begins just now may shorten rounds.
func (s *Starting) Afford(now time.Duration) bool {
	gone := max(0, now-s.at)
	if s.is {
		s.spent += min(gone, longestGone) // Afford is called twice a second while a process begins
	}
	s.spent, s.at = max(0, s.spent-time.Duration(ofStarts*float64(gone))), now
	s.is = s.spent < savedStarts
	return s.is
}
