// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package request is what a job asked for, unverified, and what Slurm gave it (its entitlement).
// It is pure: text in, values or an error for the user out.
package request

// Mem is device memory per slice: MiB, or a percentage of the GPU that the slice lands on.
// The zero value means that nothing was asked for. At most one field is set.
type Mem struct {
	MiB     int64
	Percent float64
}

// IsZero says that no memory was asked for.
func (m Mem) IsZero() bool { return m.MiB == 0 && m.Percent == 0 }

// Place says which GPU is preferred among those that fit.
type Place string

// The values of --vgpu-place. PlaceDefault leaves the choice to the node's configuration.
const (
	PlaceDefault Place = ""
	PlacePack    Place = "pack"
	PlaceSpread  Place = "spread"
)

// Policy says what a slice may do with GPU time that no other slice uses.
type Policy string

// The values of --vgpu-policy.
const (
	PolicyDefault Policy = ""
	PolicyCap     Policy = "cap"
	PolicyElastic Policy = "elastic"
)

// Priority says whose work goes first on a GPU (device.Priority).
type Priority string

// The values of --vgpu-priority.
const (
	PriorityDefault Priority = ""
	PriorityNormal  Priority = "normal"
	PriorityLatency Priority = "latency"
	PriorityBatch   Priority = "batch"
)

// Bind says which of a step's slices each of its tasks sees.
type Bind string

// The values of --vgpu-bind.
const (
	BindDefault Bind = ""
	BindNone    Bind = "none" // all of them
	BindTask    Bind = "task" // one, by the task's number on the node
)

// Filter is a comma list of names; one that starts with "!" excludes.
// An empty filter admits everything; one with only exclusions admits all the others.
type Filter struct {
	Only []string
	Not  []string
}

// Request is what the options of one job or step ask for.
type Request struct {
	Mem       Mem
	SMPercent int  // 0: no cap asked for
	Uncapped  bool // a cap of 0 was given in so many words: no default may set one
	Place     Place
	Policy    Policy
	Priority  Priority
	GPU       Filter // GRES types
	UUID      Filter // device UUIDs
	Bind      Bind
}

// IsZero says that no option was given.
func (r Request) IsZero() bool { return r.Encode() == "" }

// Merge fills what the request leaves open from the defaults of the environment, as far as the job's GRES do not have them (memory, cores).
func Merge(r, defaults Request) Request {
	for _, option := range Options {
		if option.print(r) == "" {
			option.fill(&r, defaults)
		}
	}
	return r
}

// Beyond is what a request asks for that another does not repeat.
func (r Request) Beyond(other Request) Request {
	for _, option := range Options {
		if option.print(r) == option.print(other) {
			option.copy(&r, Request{})
		}
	}
	return r
}
