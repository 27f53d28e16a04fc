// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// GroupsProcess has the channel groups of one process of a job, by the process's own word: only the driver and /proc show whether
// they are its own.
type GroupsProcess struct {
	Slot       int    // its place in the ledger
	StartTicks uint64 // field 22 of /proc/PID/stat
	PIDNS      uint64 // inode of its pid namespace; 0: not known
	PID        int32  // in that namespace
	More       uint32 // groups that found no room
	Groups     []Group
}

// Group is a channel group that computes, by the driver's handles.
type Group struct {
	Client, Device, Group uint32
	Engine                uint32 // NV2080_ENGINE_TYPE_GR0..GR7: 1..8
	DeviceInstance        uint32 // the driver's order of GPUs, below MaxDeviceInstances
	FD                    int32  // the process's descriptor of that client
	Subdevice             uint32 // 0: not seen
	ChannelCount          uint32 // those beyond the 16th are not listed
	Channels              []uint32
}

const (
	// MaxDeviceInstances is NV_MAX_DEVICES of the driver's nvlimits.h.
	MaxDeviceInstances = 32
	maxEngine          = 8
)

var (
	groupsBytes        = int64(unsafe.Sizeof(groupsPage{}))
	groupsProcessBytes = int64(unsafe.Sizeof(groupsProcess{}))
	groupsHeadBytes    = int64(unsafe.Sizeof(groupsHead{}))
	groupBytes         = int64(unsafe.Sizeof(groupsGroup{}))
	groupsProcessAt    = int64(unsafe.Offsetof(groupsPage{}.Process))
	groupsSequenceAt   = int64(unsafe.Offsetof(groupsHead{}.Sequence))
)

// GroupsBytes is the size of a groups page.
func GroupsBytes() int64 { return groupsBytes }

// CreateGroups makes the groups page of a job. It is like its ledger, but has holes: no process maps it.
func CreateGroups(path string, job uint32, uid, gid uint32) error {
	head := pageHead{Magic: GroupsMagic, LayoutVersion: VgpudVersion, SizeBytes: uint32(groupsBytes), JobID: job}
	if err := create(path, head, sparse, 0o600, uid, gid); err != nil {
		return fmt.Errorf("create groups: %w", err)
	}
	return nil
}

// ReadGroups reads a groups page that its owner may change, cut, or replace by garbage at any time. It leaves out processes that are out of
// bounds, or that write just now; after that they change the file once more. A page that is none gives ErrLayout.
func ReadGroups(path string, job uint32) ([]GroupsProcess, error) {
	fd, err := openPage(path, groupsProcessAt)
	if err != nil {
		return nil, fmt.Errorf("read groups: %w", err)
	}
	defer unix.Close(fd)
	buffer := places.Get().(*[]byte)
	defer places.Put(buffer)
	data, err := readPlaces(fd, (*buffer)[:0])
	*buffer = data
	if err != nil {
		return nil, fmt.Errorf("read groups: %w", &os.PathError{Op: "read", Path: path, Err: err})
	}
	processes, err := decodeGroups(data, job, func(slot int) (sequence uint32, ok bool) {
		var again [4]byte
		n, err := unix.Pread(fd, again[:], groupsProcessAt+int64(slot)*groupsProcessBytes+groupsSequenceAt)
		return binary.LittleEndian.Uint32(again[:]), err == nil && n == len(again)
	})
	if err != nil {
		return nil, fmt.Errorf("read groups %s: %w", path, err)
	}
	return processes, nil
}

// places are for what is read of a page: its owner can have it be three megabytes, and read fifty times a second.
var places = sync.Pool{New: func() any { return new([]byte) }}

// readPlaces reads what is no hole, up to the last of it. Where a file has no holes, or its file system cannot tell, it is all of the page.
func readPlaces(fd int, data []byte) ([]byte, error) {
	for at := int64(0); at < groupsBytes; {
		from, err := unix.Seek(fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // nothing more
			break
		} else if err != nil {
			from = at
		}
		to, err := unix.Seek(fd, from, unix.SEEK_HOLE)
		if err != nil || to <= from {
			to = groupsBytes
		}
		if from, to = min(from, groupsBytes), min(to, groupsBytes); from == to {
			break
		}
		data = slices.Grow(data, int(to)-len(data))
		clear(data[len(data):to])
		data = data[:to]
		for at = from; at < to; {
			n, err := unix.Pread(fd, data[at:to], at)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return data, err
			}
			if n == 0 { // it has shrunk since
				return data[:at], nil
			}
			at += int64(n)
		}
	}
	return data, nil
}

// decodeGroups asks for each process that has something to say whether its sequence is still the same.
func decodeGroups(data []byte, job uint32, sequence func(slot int) (uint32, bool)) (processes []GroupsProcess, err error) {
	var head pageHead
	if _, err := binary.Decode(data, binary.LittleEndian, &head); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLayout, io.ErrUnexpectedEOF)
	}
	if head.Magic != GroupsMagic || head.LayoutVersion != VgpudVersion || head.JobID != job {
		return nil, fmt.Errorf("%w: magic %#x, version %d, job %d", ErrLayout, head.Magic, head.LayoutVersion, head.JobID)
	}
	for slot := range MaxProcs {
		at := groupsProcessAt + int64(slot)*groupsProcessBytes
		if at+groupsHeadBytes > int64(len(data)) {
			break
		}
		var of groupsHead
		if _, err := binary.Decode(data[at:at+groupsHeadBytes], binary.LittleEndian, &of); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrLayout, err)
		}
		if of.PID <= 0 || of.Count > MaxGroups || of.Count == 0 && of.More == 0 || of.Sequence%2 != 0 {
			continue
		}
		process := GroupsProcess{Slot: slot, StartTicks: of.StartTicks, PIDNS: of.PIDNS, PID: of.PID, More: of.More}
		process.Groups = groupsOf(data[at+groupsHeadBytes:], of.Count)
		if now, ok := sequence(slot); ok && now == of.Sequence {
			processes = append(processes, process)
		}
	}
	return processes, nil
}

// groupsOf are those that the driver can have, each once.
func groupsOf(data []byte, count uint32) (groups []Group) {
	for i := range int64(count) {
		var raw groupsGroup
		if _, err := binary.Decode(data[min(i*groupBytes, int64(len(data))):], binary.LittleEndian, &raw); err != nil {
			break
		}
		group := Group{Client: raw.Client, Device: raw.Device, Group: raw.Group, Engine: raw.Engine, DeviceInstance: raw.DeviceInstance,
			FD: raw.FD, Subdevice: raw.Subdevice, ChannelCount: raw.ChannelCount}
		group.Channels = slices.Clone(raw.Channel[:min(raw.ChannelCount, GroupChannels)])
		if group.isPossible() && !slices.ContainsFunc(groups, group.isSame) {
			groups = append(groups, group)
		}
	}
	return groups
}

func (g Group) isPossible() bool {
	return g.Client != 0 && g.Device != 0 && g.Group != 0 && g.Engine >= 1 && g.Engine <= maxEngine &&
		g.DeviceInstance < MaxDeviceInstances && g.FD >= 0 && !slices.Contains(g.Channels, 0)
}

func (g Group) isSame(other Group) bool { return g.Client == other.Client && g.Group == other.Group }
