// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

var aGroup = groupsGroup{Client: 0xc1d0001e, Device: 0x5c000001, Group: 0x5c000010, Engine: 1, DeviceInstance: 3, FD: 7,
	Subdevice: 0x5c000002, ChannelCount: 2, Channel: [GroupChannels]uint32{0x5c00001c, 0x5c00001d}}

func ofGroup(raw groupsGroup, channels int) Group {
	return Group{Client: raw.Client, Device: raw.Device, Group: raw.Group, Engine: raw.Engine, DeviceInstance: raw.DeviceInstance,
		FD: raw.FD, Subdevice: raw.Subdevice, ChannelCount: raw.ChannelCount, Channels: raw.Channel[:channels]}
}

func processOf(groups ...groupsGroup) (process groupsProcess) {
	process.groupsHead = groupsHead{StartTicks: 1234, PIDNS: 42, PID: 99, Count: uint32(len(groups)), Sequence: 2}
	copy(process.Group[:], groups)
	return process
}

// writeDown is what a process of the job does.
func writeDown(t *testing.T, path string, slot int, process groupsProcess) {
	t.Helper()
	data, err := binary.Append(nil, binary.LittleEndian, process)
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(data, groupsProcessAt+int64(slot)*groupsProcessBytes); err != nil {
		t.Fatal(err)
	}
}

func newGroups(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "groups")
	if err := CreateGroups(path, 12, uint32(os.Getuid()), uint32(os.Getgid())); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNewGroupsAreEmptyAndTheJobs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "groups")
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	if uid == 0 {
		uid, gid = 65534, 65533
	}
	if err := CreateGroups(path, 12, uid, gid); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	of := st.Sys().(*syscall.Stat_t)
	if st.Mode() != 0o600 || st.Size() != GroupsBytes() || of.Uid != uid || of.Gid != gid {
		t.Errorf("mode %v, %d bytes, of %d and %d", st.Mode(), st.Size(), of.Uid, of.Gid)
	}
	if of.Blocks*512 > 64<<10 {
		t.Errorf("it takes %d bytes", of.Blocks*512)
	}
	if got, err := ReadGroups(path, 12); err != nil || len(got) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := ReadGroups(path, 13); !errors.Is(err, ErrLayout) {
		t.Errorf("another job's: %v", err)
	}
}

func TestGroupsAreReadWhereverTheProcessHasItsPlace(t *testing.T) {
	path := newGroups(t)
	other := aGroup
	other.Group, other.ChannelCount, other.Subdevice = 0x5c000030, 40, 0
	for i := range other.Channel {
		other.Channel[i] = uint32(0x5c000100 + i)
	}
	process, full := processOf(aGroup, other), processOf()
	full.More = 3
	writeDown(t, path, 0, process)
	writeDown(t, path, 500, process)
	writeDown(t, path, MaxProcs-1, full)
	got, err := ReadGroups(path, 12)
	if err != nil {
		t.Fatal(err)
	}
	want := GroupsProcess{StartTicks: 1234, PIDNS: 42, PID: 99, Groups: []Group{ofGroup(aGroup, 2), ofGroup(other, GroupChannels)}}
	at500 := want
	at500.Slot = 500
	if diff := cmp.Diff([]GroupsProcess{want, at500, {Slot: MaxProcs - 1, StartTicks: 1234, PIDNS: 42, PID: 99, More: 3}}, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhatNoDriverHasIsLeftOut(t *testing.T) {
	for name, spoil := range map[string]func(p *groupsProcess){
		"no process":          func(p *groupsProcess) { p.PID = 0 },
		"a number below zero": func(p *groupsProcess) { p.PID = -1 },
		"too many":            func(p *groupsProcess) { p.Count = MaxGroups + 1 },
		"nothing":             func(p *groupsProcess) { p.Count = 0 },
		"being written":       func(p *groupsProcess) { p.Sequence = 3 },
	} {
		path, process := newGroups(t), processOf(aGroup)
		spoil(&process)
		writeDown(t, path, 3, process)
		if got, err := ReadGroups(path, 12); err != nil || len(got) != 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for name, spoil := range map[string]func(g *groupsGroup){
		"no client":        func(g *groupsGroup) { g.Client = 0 },
		"no device":        func(g *groupsGroup) { g.Device = 0 },
		"no group":         func(g *groupsGroup) { g.Group = 0 },
		"no engine":        func(g *groupsGroup) { g.Engine = 0 },
		"a copy engine":    func(g *groupsGroup) { g.Engine = 9 },
		"no GPU":           func(g *groupsGroup) { g.DeviceInstance = MaxDeviceInstances },
		"no descriptor":    func(g *groupsGroup) { g.FD = -1 },
		"no channel":       func(g *groupsGroup) { g.Channel[1] = 0 },
		"the same for two": func(g *groupsGroup) { g.Group = 5 },
	} {
		path, bad := newGroups(t), aGroup
		spoil(&bad)
		five := aGroup
		five.Group = 5
		writeDown(t, path, 3, processOf(five, bad))
		if got, err := ReadGroups(path, 12); err != nil || len(got) != 1 || len(got[0].Groups) != 1 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// A process that writes while it is read is not believed in this look.
func TestWhatIsWrittenMeanwhileIsLeftOut(t *testing.T) {
	data, err := binary.Append(nil, binary.LittleEndian, groupsPage{Magic: GroupsMagic, LayoutVersion: VgpudVersion, JobID: 12,
		Process: [MaxProcs]groupsProcess{processOf(aGroup), processOf(aGroup), processOf(aGroup)}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeGroups(data, 12, func(slot int) (uint32, bool) { return uint32(2 + slot), slot < 2 })
	if err != nil || len(got) != 1 || got[0].Slot != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestGroupsThatAreNoneAreNotRead(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"cut":     func(path string) error { return os.Truncate(path, 31) },
		"empty":   func(path string) error { return os.Truncate(path, 0) },
		"holes":   func(path string) error { return errors.Join(os.Truncate(path, 0), os.Truncate(path, 1<<40)) },
		"garbage": func(path string) error { return os.WriteFile(path, make([]byte, 1<<20), 0o600) },
		"a link":  func(path string) error { return errors.Join(os.Rename(path, path+"-"), os.Symlink(path+"-", path)) },
		"a fifo":  func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) },
	} {
		path := newGroups(t)
		if err := spoil(path); err != nil {
			t.Logf("%s: %v", name, err) // not every file system has holes of a TiB
			continue
		}
		if got, err := ReadGroups(path, 12); !errors.Is(err, ErrLayout) && !errors.Is(err, unix.ELOOP) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := ReadGroups(filepath.Join(t.TempDir(), "none"), 12); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	// What stands behind the page is nobody's.
	path := newGroups(t)
	if err := os.Truncate(path, 1<<33); err == nil {
		writeDown(t, path, MaxProcs+5, processOf(aGroup))
		if got, err := ReadGroups(path, 12); err != nil || len(got) != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

func FuzzDecodeGroups(f *testing.F) {
	good, err := binary.Append(nil, binary.LittleEndian, groupsPage{Magic: GroupsMagic, LayoutVersion: VgpudVersion, JobID: 12,
		Process: [MaxProcs]groupsProcess{processOf(aGroup, aGroup)}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good[:groupsProcessAt+2*groupsProcessBytes])
	f.Add(good[:groupsProcessAt+groupsHeadBytes+groupBytes+3])
	f.Add(good[:20])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		processes, err := decodeGroups(data, 12, func(int) (uint32, bool) { return 2, true })
		if err != nil {
			return
		}
		for i, p := range processes {
			if p.PID <= 0 || len(p.Groups) > MaxGroups || p.Slot >= MaxProcs || i > 0 && p.Slot <= processes[i-1].Slot {
				t.Errorf("process %+v", p)
			}
			for _, g := range p.Groups {
				if !g.isPossible() || len(g.Channels) > GroupChannels {
					t.Errorf("group %+v", g)
				}
			}
		}
	})
}
