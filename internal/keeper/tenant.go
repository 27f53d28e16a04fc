// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"errors"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

// gpu is a GPU with slices.
type gpu struct {
	NodeGPU
	tenants []*tenant
	weights []float64 // of each tenant

	device Device // nil: no file of it is open
	log    Log    // nil: at most one tenant works
	meter  share.Meter
	window share.Window
	rule   share.Rule
	rota   share.Rota
	plan   share.Plan
	lost   []channels.Channel // that an earlier vgpud may have left off

	looked    time.Duration // the last look; 0: the meter has not begun
	quiet     int           // looks since a slice worked
	planned   time.Duration
	starting  share.Starting
	corrected time.Duration             // when the rota was corrected by the tenants' use
	aheadNS   int64                     // the GPU's clock, less the node's
	untracked bool                      // NVML shows processes of no tenant: the counter has their use too, so the log is needed
	holders   map[int]bool              // processes of its tenants that NVML shows
	asked     time.Duration             // the last query of NVML for the process that is on
	named     map[channels.Channel]bool // by the record

	others bool // the GPU is full, and a tenant that always has work has less than its part

	turns   turns
	period  period
	refusal refusal
}

// turns are those that are taken now.
type turns struct {
	sets    [][]*group    // the groups of each of plan.Turns
	on      int           // the place in plan.Turns of the turn that is on; -1: all are on
	changed time.Duration // when it began
	end     time.Duration
}

// period is one of slices that are held by caps.
type period struct {
	began, ends time.Duration // 0: no slice is held
	next        time.Duration // when a slice is put off, or the period ends
}

// refusal is of a GPU that is left to the library, or is to be.
type refusal struct {
	asked  bool           // it is to be left to the library
	tried  bool           // a harmless call was tried
	jobs   map[int]uint32 // of the processes that NVML shows
	only   uint32         // the job at work; 0: not known
	failed int            // calls in a row that failed to put a group off
}

// tenant is a slice of a GPU.
type tenant struct {
	Slice
	key       uint64
	share     float64 // of 1
	page      *page
	account   share.Account
	capState  capState
	presence  presence
	demand    share.Demand
	bucket    *share.Bucket // nil: it is not of the latency class
	goesFirst bool
	gone      bool // its slice is gone
	groups    []*group
	pids      []uint32
	known     share.Tenant  // its figures of the last window
	slice     time.Duration // of each of its groups; 0: as the driver has it
	percent   uint32
	due       float64                  // its part of all shares at work, of 1
	passed    int                      // plans in a row in which it did not use turns of its own
	apart     int                      // plans for which it has none
	uncounted bool                     // its use is not known, as the driver refuses calls
	hidden    bool                     // a process of it works, and its groups are not known
	named     bool                     // the GPU is left to the library, and a process of the job has something on a GPU
	late      map[uint32]time.Duration // ended processes, and until when their figures may still be read
	before    share.Judge              // the worst figures of ended processes, for the next ones
	heirs     time.Duration            // before counts until then
}

// group is a channel group that the driver has confirmed as its process's.
type group struct {
	owner    *owner
	of       *tenant
	handles  channels.Group
	channels []channels.Channel
	slice    time.Duration // that was set; 0: none was
	off      bool
	verified time.Duration // the last confirmation
	isNew    bool          // the budget for its time slice was taken with the query
	seen     bool          // at a look of the judge's
	saves    channels.Saves
	unnamed  bool // it has channels that are not listed, and cannot be put off
}

// owner is a process with channel groups.
type owner struct {
	Owner
	Process
	heir      *audit.Process // the process with its descriptors, if it has ended; Owner is of the heir then
	groups    map[groupKey]*group
	refused   bool
	refusedAt time.Duration // since when
	waits     bool          // the driver has not confirmed all groups on its page
	honest    bool          // the library is in it, also where its page names nothing
	isOff     bool          // all its groups on a GPU are off
	startsTo  time.Duration // until then it makes its first groups
	begun     bool          // it was stopped at its begin, or need not be
	sights    map[device.UUID]*sight
}

type groupKey struct{ client, group uint32 }

func keyOf(s Slice) uint64 {
	return uint64(s.Job)<<32 | uint64(s.Place)&0xffff | uint64(s.Restart)&0xffff<<16
}

// works says that a slice has a process that can compute.
func (t *tenant) works() bool { return len(t.groups) > 0 }

// working counts the tenants of a GPU that work.
func (g *gpu) working() (count int) {
	for _, t := range g.tenants {
		if t.works() {
			count++
		}
	}
	return count
}

// counts says that there may be GPU time of a slice to count.
func (t *tenant) counts() bool { return t.works() || t.hidden || t.named || len(t.late) > 0 }

// counting counts the tenants of a GPU with such time.
func (g *gpu) counting() (count int) {
	for _, t := range g.tenants {
		if t.counts() {
			count++
		}
	}
	return count
}

// ends notes that a process has ended, or closed its groups.
func (t *tenant) ends(pid uint32, now time.Duration) {
	if t.late == nil {
		t.late = map[uint32]time.Duration{}
	}
	t.late[pid] = now + lateFor
}

func (g *gpu) isLate() bool {
	return slices.ContainsFunc(g.tenants, func(t *tenant) bool { return len(t.late) > 0 })
}

func (t *tenant) isLatency() bool { return t.Latency }

// has says whether a group of a process is the tenant's.
func (t *tenant) has(p audit.Process) bool {
	return slices.ContainsFunc(t.groups, func(g *group) bool { return g.owner.Process.Process == p })
}

func (t *tenant) hasPID(pid uint32) bool {
	return slices.ContainsFunc(t.groups, func(g *group) bool { return uint32(g.owner.PID) == pid })
}

// starts says that a process of a tenant begins. Short rounds for it cost all others something, so that it counts for no more than a quarter of the time.
func (k *keeper) starts(g *gpu, t *tenant) bool {
	if !slices.ContainsFunc(t.groups, func(m *group) bool { return k.now < m.owner.startsTo }) {
		return false
	}
	return g.starting.Afford(k.now)
}

// unknown counts a tenant's groups at work that are not known: at least one.
func (t *tenant) unknown() int {
	if t.hidden || t.named {
		return 1
	}
	return 0
}

func (k *keeper) newOwner(p Process) *owner { return k.newOwnerBy(p, p.PID) }

// newOwnerBy begins to follow a process by way of its heir.
func (k *keeper) newOwnerBy(p Process, pid int) *owner {
	if err := k.openDriver(); err != nil {
		k.once("shares of GPU time are not kept: the driver cannot be queried", err)
		k.noCapsOf(p.Job, err)
		return nil
	}
	held, err := k.driver.Owner(pid)
	if err != nil {
		if !errors.Is(err, channels.ErrGone) {
			k.once("a process of a job cannot be held", err)
		}
		return nil
	}
	if held.Ended() {
		held.Close()
		return nil
	}
	o := &owner{Owner: held, Process: p, groups: map[groupKey]*group{}, sights: map[device.UUID]*sight{}}
	k.owners[p.Process] = o
	k.begins(o)
	return o
}
