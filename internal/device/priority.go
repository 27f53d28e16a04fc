// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package device

import "slices"

// Priority says whose work goes first on a GPU: the larger one's. It is a number, as every change of the state copies all slices.
type Priority int8

// The values of --vgpu-priority.
const (
	PriorityBatch   Priority = iota - 1 // its time slices may be cut short at any time
	PriorityNormal                      // what a slice has that says nothing
	PriorityLatency                     // its work goes before others', as long as its bucket has credit
)

var priorities = []string{"batch", "normal", "latency"}

// String is the value as users type it.
func (p Priority) String() string {
	if !p.IsKnown() {
		p = PriorityNormal
	}
	return priorities[p-PriorityBatch]
}

// PriorityOf reads what String writes. Any other text is normal, which gives no slice more than others.
func PriorityOf(name string) Priority {
	if at := slices.Index(priorities, name); at >= 0 {
		return PriorityBatch + Priority(at)
	}
	return PriorityNormal
}

// IsKnown is false of a number that stands for none.
func (p Priority) IsKnown() bool { return p >= PriorityBatch && p <= PriorityLatency }

// MarshalText is for JSON.
func (p Priority) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText is for JSON.
func (p *Priority) UnmarshalText(text []byte) error {
	*p = PriorityOf(string(text))
	return nil
}
