// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// No page of a later build is longer.
const (
	mostLimits = 4095
	mostTime   = 64 << 10
)

// ErrLayout is wrapped when a page is not one of this layout version.
var ErrLayout = errors.New("not a page of this layout")

// Limits is what one step may use. Device i is the job's slice i, also in the ledger; a slice
// that is not the step's has a StepMemBytes of 0.
type Limits struct {
	Job        uint32
	Step       uint32
	UID        uint32
	Flags      uint32
	Generation uint32 // grows with every change of a running job
	JobStep    string // "123.0", "123.batch"
	PagesDir   string // the job's pages, where the step's folder has none
	Devices    []LimitsDevice
	Ledger     File // the job's ledger
}

// File is which file of the node something is, as stat(2) says.
type File struct{ Device, Inode uint64 }

// FileOf finds it. The path is root's.
func FileOf(path string) (File, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return File{}, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return File{Device: st.Dev, Inode: st.Ino}, nil
}

// LimitsDevice is the limit on one device.
type LimitsDevice struct {
	UUID           device.UUID
	StepMemBytes   uint64
	JobMemBytes    uint64 // all steps of the job together
	DeviceMemBytes uint64 // the whole GPU
	SMPercent      uint32 // the step's share of the GPU's time; 0: no cap
	JobSMPercent   uint32 // all steps of the job together
	Index          device.NVMLIndex
	Minor          device.Minor
	Gated          bool // the library holds the cap
}

// WriteLimits replaces the limits page at path; every user may read it. A process that has the old
// page mapped keeps it.
func WriteLimits(path string, limits Limits) error {
	data, err := encodeLimits(limits)
	if err != nil {
		return fmt.Errorf("write limits %s: %w", path, err)
	}
	if err := trusted.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("write limits: %w", err)
	}
	return nil
}

// ChangeLimits puts other limits on the page of a step that may run: its processes have it mapped.
// Only the limits are changed, not whose they are. The generation is the last to grow.
func ChangeLimits(path string, limits Limits) error {
	is, err := ReadLimits(path)
	if err != nil {
		return fmt.Errorf("change limits: %w", err)
	}
	if len(is.Devices) != len(limits.Devices) {
		return fmt.Errorf("change limits %s: it has %d devices, not %d", path, len(is.Devices), len(limits.Devices))
	}
	same := true
	for i, d := range limits.Devices {
		if is.Devices[i].UUID != d.UUID {
			return fmt.Errorf("change limits %s: device %d is %s, not %s", path, i, is.Devices[i].UUID, d.UUID)
		}
		same = same && is.Devices[i] == d
	}
	if same {
		return nil
	}
	err = inPlace(path, func(data []byte) {
		page := (*limitsPage)(unsafe.Pointer(unsafe.SliceData(data))) // the mirror has C's offsets, which a test compares
		for i, d := range limits.Devices {
			on := &page.Device[i]
			atomic.StoreUint64(&on.StepMemBytes, d.StepMemBytes)
			atomic.StoreUint64(&on.JobMemBytes, d.JobMemBytes)
			atomic.StoreUint32(&on.SMPercent, d.SMPercent)
			atomic.StoreUint32(&on.JobSMPercent, d.JobSMPercent)
			atomic.StoreUint32(&on.Gated, number(d.Gated))
		}
		atomic.StoreUint32(&page.Flags, is.Flags&^Gated|gatedFlag(limits.Devices))
		atomic.AddUint32(&page.Generation, 1)
	})
	if err != nil {
		return fmt.Errorf("change limits: %w", err)
	}
	return nil
}

// ReadLimits reads a trusted limits page.
func ReadLimits(path string) (Limits, error) {
	data, err := trusted.ReadFile(path, mostLimits)
	if err != nil {
		return Limits{}, fmt.Errorf("read limits: %w", err)
	}
	limits, err := decodeLimits(data)
	if err != nil {
		return Limits{}, fmt.Errorf("read limits %s: %w", path, err)
	}
	return limits, nil
}

// ReadForeignJob says of which job a limits page is that a process may have put into its own root folder. In every layout the page has this
// size, and the job stands in the same place.
func ReadForeignJob(path string) (uint32, error) {
	data, err := trusted.ReadForeign(path, LimitsLeast, mostLimits)
	if err != nil {
		return 0, fmt.Errorf("read limits: %w", err)
	}
	var page limitsPage
	if err := decodePage(data, LimitsLeast, &page); err != nil || page.Magic != LimitsMagic {
		return 0, fmt.Errorf("read limits %s: %w: magic %#x", path, ErrLayout, page.Magic)
	}
	return page.JobID, nil
}

func encodeLimits(limits Limits) ([]byte, error) {
	if len(limits.Devices) > MaxDevices {
		return nil, fmt.Errorf("%d devices, at most %d have room", len(limits.Devices), MaxDevices)
	}
	page := limitsPage{
		Magic: LimitsMagic, LayoutVersion: LayoutVersion,
		JobID: limits.Job, StepID: limits.Step, UID: limits.UID,
		DeviceCount: uint32(len(limits.Devices)), Flags: limits.Flags | gatedFlag(limits.Devices), Generation: limits.Generation,
	}
	page.SizeBytes = uint32(binary.Size(page))
	page.LedgerDevice, page.LedgerInode = limits.Ledger.Device, limits.Ledger.Inode
	if len(limits.PagesDir) >= PagesDirBytes {
		return nil, fmt.Errorf("the path %s does not fit the page: at most %d bytes do", limits.PagesDir, PagesDirBytes-1)
	}
	// All strings end in a NUL that C relies on.
	copy(page.JobStep[:len(page.JobStep)-1], limits.JobStep)
	copy(page.PagesDir[:], limits.PagesDir)
	for i, d := range limits.Devices {
		if len(d.UUID) >= UUIDBytes || d.Index < 0 || d.Minor < 0 {
			return nil, fmt.Errorf("device %q (NVML index %d, minor %d) does not fit the page", d.UUID, d.Index, d.Minor)
		}
		page.Device[i] = limitsDevice{
			StepMemBytes: d.StepMemBytes, JobMemBytes: d.JobMemBytes, DeviceMemBytes: d.DeviceMemBytes,
			SMPercent: d.SMPercent, JobSMPercent: d.JobSMPercent, NVMLIndex: uint32(d.Index), Minor: uint32(d.Minor),
			Gated: number(d.Gated),
		}
		copy(page.Device[i].UUID[:], d.UUID)
	}
	return binary.Append(nil, binary.LittleEndian, page)
}

func decodeLimits(data []byte) (Limits, error) {
	var page limitsPage
	if err := decodePage(data, LimitsLeast, &page); err != nil {
		return Limits{}, err
	}
	if page.Magic != LimitsMagic || page.LayoutVersion != LayoutVersion || page.DeviceCount > MaxDevices {
		return Limits{}, fmt.Errorf("%w: magic %#x, version %d, %d devices", ErrLayout, page.Magic, page.LayoutVersion, page.DeviceCount)
	}
	limits := Limits{Job: page.JobID, Step: page.StepID, UID: page.UID, Flags: page.Flags &^ Gated,
		Generation: page.Generation, JobStep: text(page.JobStep[:]), PagesDir: text(page.PagesDir[:]),
		Ledger: File{page.LedgerDevice, page.LedgerInode}}
	for _, d := range page.Device[:page.DeviceCount] {
		limits.Devices = append(limits.Devices, LimitsDevice{
			UUID: device.UUID(text(d.UUID[:])), StepMemBytes: d.StepMemBytes, JobMemBytes: d.JobMemBytes,
			DeviceMemBytes: d.DeviceMemBytes, SMPercent: d.SMPercent, JobSMPercent: d.JobSMPercent,
			Index: device.NVMLIndex(d.NVMLIndex), Minor: device.Minor(d.Minor), Gated: d.Gated != 0,
		})
	}
	return limits, nil
}

// decodePage takes what a page has; where it was made by a build that knew less, the rest is zero.
func decodePage(data []byte, least int, page any) error {
	if len(data) < least {
		return fmt.Errorf("%w: %d bytes, want at least %d", ErrLayout, len(data), least)
	}
	if missing := binary.Size(page) - len(data); missing > 0 {
		data = append(slices.Clip(data), make([]byte, missing)...)
	}
	if _, err := binary.Decode(data, binary.LittleEndian, page); err != nil {
		return fmt.Errorf("%w: %w", ErrLayout, err)
	}
	return nil
}

// gatedFlag is for the whole page, so that a program in which the library holds no cap looks at one word.
func gatedFlag(devices []LimitsDevice) uint32 {
	if slices.ContainsFunc(devices, func(d LimitsDevice) bool { return d.Gated }) {
		return Gated
	}
	return 0
}

func number(is bool) uint32 {
	if is {
		return 1
	}
	return 0
}

func text(field []byte) string {
	before, _, _ := bytes.Cut(field, []byte{0})
	return string(before)
}

// inPlace changes a file of root's that processes have mapped. Nobody else can cut it.
func inPlace(path string, change func(data []byte)) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size < LimitsLeast {
		return fmt.Errorf("%s: %w: %d bytes, want at least %d", path, ErrLayout, st.Size, LimitsLeast)
	}
	data, err := unix.Mmap(fd, 0, LimitsLeast, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return &os.PathError{Op: "map", Path: path, Err: err}
	}
	change(data)
	if err := unix.Munmap(data); err != nil {
		return &os.PathError{Op: "unmap", Path: path, Err: err}
	}
	return nil
}
