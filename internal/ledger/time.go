// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// Tick is the unit of a process's start in /proc/PID/stat, and so in pages.
const Tick = 10 * time.Millisecond

// TimeNow is the clock of time pages: CLOCK_MONOTONIC, which goes on when vgpud begins anew.
func TimeNow() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // every kernel has it
	return time.Duration(now.Nano())
}

var (
	timeBytes      = int64(unsafe.Sizeof(timePage{}))
	timeSequenceAt = int64(unsafe.Offsetof(timePage{}.Sequence))
	timeDeviceAt   = int64(unsafe.Offsetof(timePage{}.Device))
)

// TimeBytes is the size of a time page.
func TimeBytes() int64 { return timeBytes }

// CreateTime makes the time page of a job. It is root's; every user may read it.
func CreateTime(path string, job uint32, devices int) error {
	head := pageHead{Magic: TimeMagic, LayoutVersion: VgpudVersion, SizeBytes: uint32(timeBytes), JobID: job, DeviceCount: uint32(devices)}
	if err := create(path, head, whole, 0o644, uint32(os.Geteuid()), uint32(os.Getegid())); err != nil {
		return fmt.Errorf("create time: %w", err)
	}
	return nil
}

// ReadTime reads a trusted time page: an entry for each of the job's slices.
func ReadTime(path string, job uint32) ([]TimeDevice, error) {
	var page *timePage
	for range timeTries {
		var err error
		if page, err = readTime(path, job); err != nil {
			return nil, fmt.Errorf("read time: %w", err)
		}
		if page.Sequence%2 == 0 {
			if again, err := readTime(path, job); err == nil && again.Sequence == page.Sequence {
				break
			}
		}
	}
	return page.devices(), nil // of a writer that was killed as well: what it left is as good as there is
}

// timeTries is how often a page that is being written is read again.
const timeTries = 10

func readTime(path string, job uint32) (*timePage, error) {
	data, err := trusted.ReadFile(path, mostTime)
	if err != nil {
		return nil, err
	}
	page := new(timePage)
	if err := decodePage(data, TimeLeast, page); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if page.Magic != TimeMagic || page.LayoutVersion != VgpudVersion || page.JobID != job || page.DeviceCount > MaxDevices {
		return nil, fmt.Errorf("%s: %w: magic %#x, version %d, job %d, %d devices", path, ErrLayout, page.Magic, page.LayoutVersion, page.JobID, page.DeviceCount)
	}
	return page, nil
}

func (page *timePage) devices() []TimeDevice { return slices.Clone(page.Device[:page.DeviceCount]) }

// TimePage is a job's time page, open for writing. One writer has it at a time. No mapping: the page is cut when its job ends, and a
// program that touched a mapping of it then would be killed.
type TimePage struct {
	file     *os.File
	sequence uint32
	devices  []TimeDevice
}

// OpenTime opens a trusted time page of this job.
func OpenTime(path string, job uint32) (*TimePage, error) {
	page, err := readTime(path, job)
	if err != nil {
		return nil, fmt.Errorf("open time: %w", err)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open time: %w", &os.PathError{Op: "open", Path: path, Err: err})
	}
	return &TimePage{file: os.NewFile(uintptr(fd), path), sequence: page.Sequence, devices: page.devices()}, nil
}

// Devices are the page's figures, as it was opened or put last: a new writer counts on from there.
func (p *TimePage) Devices() []TimeDevice { return p.devices }

// Put writes what a look has found, an entry for each of the job's slices; more of them are left out.
func (p *TimePage) Put(devices []TimeDevice) error {
	devices = devices[:min(len(devices), len(p.devices))]
	copy(p.devices, devices)
	data, err := binary.Append(nil, binary.LittleEndian, p.devices)
	if err != nil {
		return fmt.Errorf("write time: %w", err)
	}
	odd := p.sequence | 1
	if err := p.putSequence(odd); err != nil {
		return err
	}
	crashpoint.At("ledger/time-begun")
	if _, err := p.file.WriteAt(data, timeDeviceAt); err != nil {
		return fmt.Errorf("write time: %w", err)
	}
	p.sequence = odd + 1
	return p.putSequence(p.sequence)
}

func (p *TimePage) putSequence(sequence uint32) error {
	if _, err := p.file.WriteAt(binary.LittleEndian.AppendUint32(nil, sequence), timeSequenceAt); err != nil {
		return fmt.Errorf("write time: %w", err)
	}
	return nil
}

// Close lets go of the page.
func (p *TimePage) Close() error { return p.file.Close() }
