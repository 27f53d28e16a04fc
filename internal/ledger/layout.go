// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package ledger is the Go side of interposer/api/layout.h: it writes the limits page that the
// interposer obeys, creates the pages that it and vgpud write, and reads them back without believing them. The structs
// mirror those of C field by field; a test compares sizes and offsets.
package ledger

// Constants of interposer/api/layout.h.
const (
	// LayoutVersion is that of limits and ledgers, which are one job's. It grows with any change of layout.h.
	LayoutVersion = 8
	// VgpudVersion is that of groups and time, which are between jobs and vgpud.
	VgpudVersion = 7
	// vgpudBefore had the same groups and time.
	vgpudBefore = 6

	limitsMagic = 0x314d494c55504756 // "VGPULIM1"
	ledgerMagic = 0x314447524c555056 // "VPULRGD1"
	groupsMagic = 0x3150524755504756 // "VGPUGRP1"
	timeMagic   = 0x314d495455504756 // "VGPUTIM1"

	// MaxDevices is the most slices that one job may hold on a node.
	MaxDevices = 16
	maxSteps   = 256
	maxProcs   = 1024
	uuidBytes  = 64
	jobStepLen = 40

	pathBytes = 112
	locksAt   = 1 << 40 // where the lock of a ledger's first slot lies

	maxGroups     = 32
	groupChannels = 16
)

func isVgpuds(version uint32) bool { return version == VgpudVersion || version == vgpudBefore }

// Flags of a limits page.
const (
	FailOpen uint32 = 1 // a ledger that cannot be used lets the program run unlimited
	Gated    uint32 = 4 // the library holds the cap of some slice: follows from LimitsDevice.Gated
)

// Flags of a slice's GPU time.
const (
	TimeFrozen  uint32 = 1 // the job's step is frozen now
	TimeUnnamed uint32 = 2 // a process that is at work has written down no handles
	TimeInexact uint32 = 4 // split among several that do not fill the GPU
	TimeIdle    uint32 = 8 // no process of the job had anything to compute with at the last look
	// TimeUncounted: nobody can say what it has just now, as the driver refuses vgpud its calls.
	TimeUncounted uint32 = 16
)

// Names of the pages in a step's folder.
const (
	LimitsFile = "limits"
	LedgerFile = "ledger"
)

type limitsDevice struct { // struct vgpu_limits_device
	UUID           [uuidBytes]byte
	StepMemBytes   uint64
	JobMemBytes    uint64
	DeviceMemBytes uint64
	SMPercent      uint32
	NVMLIndex      uint32
	Minor          uint32
	JobSMPercent   uint32
	Gated          uint32
	Reserved       [5]uint32
}

type limitsPage struct { // struct vgpu_limits
	Magic         uint64
	LayoutVersion uint32
	SizeBytes     uint32
	JobID         uint32
	StepID        uint32
	UID           uint32
	DeviceCount   uint32
	Flags         uint32
	Generation    uint32
	JobStep       [jobStepLen]byte
	Device        [MaxDevices]limitsDevice
	PagesDir      [pathBytes]byte
	LedgerDevice  uint64
	LedgerInode   uint64
}

type ledgerSlot struct { // struct vgpu_ledger_slot
	State        uint32
	PID          int32
	StartTicks   uint64
	PIDNS        uint64
	Step         uint32
	Measuring    uint32
	UsedBytes    [MaxDevices]uint64
	Image        uint64
	HasLock      uint32
	Reserved     [5]uint32
	MayTakeBytes [MaxDevices]uint64
}

type ledgerStep struct { // struct vgpu_ledger_step
	InUse     uint32
	StepID    uint32
	UsedBytes [MaxDevices]uint64
	PeakBytes [MaxDevices]uint64
	Refusals  [MaxDevices]uint64

	ShareFreeAtNs [MaxDevices]uint64
}

// ledgerTotals is struct vgpu_ledger up to the steps.
type ledgerTotals struct {
	Magic         uint64
	LayoutVersion uint32
	SizeBytes     uint32
	JobID         uint32
	DeviceCount   uint32
	Lock          uint32
	LockWaiters   uint32
	LockPIDNS     uint64
	SlotsHigh     uint32
	Measuring     uint32
	LockTurns     uint64
	Reserved      uint64
	UsedBytes     [MaxDevices]uint64
	PeakBytes     [MaxDevices]uint64
	Refusals      [MaxDevices]uint64
	ShareFreeAtNs [MaxDevices]uint64
}

// ledgerHead is all of struct vgpu_ledger before the process slots.
type ledgerHead struct {
	ledgerTotals
	Step [maxSteps]ledgerStep
}

type ledgerPage struct { // struct vgpu_ledger
	ledgerHead
	Slot         [maxProcs]ledgerSlot
	ContextBytes [MaxDevices]uint64
}

type groupsGroup struct { // struct vgpu_channel_group
	Client         uint32
	Device         uint32
	Group          uint32
	Engine         uint32
	DeviceInstance uint32
	FD             int32
	Subdevice      uint32
	ChannelCount   uint32
	Channel        [groupChannels]uint32
}

// groupsHead is struct vgpu_groups_process up to the groups.
type groupsHead struct {
	StartTicks uint64
	PIDNS      uint64
	PID        int32
	Count      uint32
	More       uint32
	Sequence   uint32
}

type groupsProcess struct { // struct vgpu_groups_process
	groupsHead
	Group [maxGroups]groupsGroup
}

type groupsPage struct { // struct vgpu_groups
	Magic         uint64
	LayoutVersion uint32
	SizeBytes     uint32
	JobID         uint32
	Reserved      [3]uint32
	Process       [maxProcs]groupsProcess
}

type timeDevice struct { // struct vgpu_time_device
	BusyNs     uint64
	UnknownNs  uint64
	LookedNs   uint64
	CreditNs   int64
	SliceUs    uint32
	Percent    uint32
	Frozen     uint32
	Flags      uint32
	Killed     uint32
	Verdict    uint32
	CreditAtNs uint64
}

type timePage struct { // struct vgpu_time
	Magic         uint64
	LayoutVersion uint32
	SizeBytes     uint32
	JobID         uint32
	DeviceCount   uint32
	Sequence      uint32
	Reserved      uint32
	Reserved2     [3]uint64
	Device        [MaxDevices]timeDevice
}
