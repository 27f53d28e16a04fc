// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package ledger is the Go side of interposer/api/layout.h: it writes the limits page that the
// interposer obeys, creates the pages that it and vgpud write, and reads them back without believing them. layout.go has C's structs.
package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

//go:generate go run ../../interposer/api/generate ../../interposer/api/layout.h layout.go

// maxCount bounds what a ledger can claim, so that no number of it breaks a reader downstream.
const maxCount = 1_000_000_000

// Usage is what a ledger says about a job, brought into bounds.
type Usage struct {
	Devices []DeviceUsage // the job's slices, in order
	Steps   []StepUsage   // those that the ledger still knows
}

// StepUsage is one step's part.
type StepUsage struct {
	Step    uint32
	Devices []DeviceUsage
}

// Bounds are what a job can have used at most.
type Bounds struct {
	Bytes []uint64 // its slices in order
}

// Create makes the ledger of a job: empty but for its header, owned by the job's user, readable
// by no other user. The folder must be one that only root may write. A ledger that is already there is
// kept, because the job may run; so a second call changes nothing.
func Create(path string, job uint32, devices int, uid, gid uint32) error {
	head := pageHead{Magic: LedgerMagic, LayoutVersion: LayoutVersion, SizeBytes: uint32(binary.Size(ledgerPage{})), JobID: job, DeviceCount: uint32(devices)}
	if err := create(path, head, whole, 0o600, uid, gid); err != nil {
		return fmt.Errorf("create ledger: %w", err)
	}
	return nil
}

// Bytes is the size of a ledger.
func Bytes() int64 { return int64(binary.Size(ledgerPage{})) }

// pageHead is what the pages of a job begin with.
type pageHead struct {
	Magic         uint64
	LayoutVersion uint32
	SizeBytes     uint32
	JobID         uint32
	DeviceCount   uint32
}

// extent is how much of a new page lies on the file system.
type extent int

const (
	whole  extent = iota // a process that writes to a hole that it has mapped, when the file system is full, is killed by SIGBUS
	sparse               // nobody maps it
)

func create(path string, head pageHead, extent extent, mode os.FileMode, uid, gid uint32) error {
	if head.DeviceCount > MaxDevices {
		return fmt.Errorf("%s: %d devices, at most %d have room", path, int32(head.DeviceCount), MaxDevices)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	file := os.NewFile(uintptr(fd), path)
	if err := fill(file, head, extent, mode, uid, gid); err != nil {
		file.Close()
		os.Remove(path)
		return err
	}
	return file.Close()
}

// fill writes the head; the rest is zero.
func fill(file *os.File, head pageHead, extent extent, mode os.FileMode, uid, gid uint32) error {
	page, err := binary.Append(nil, binary.LittleEndian, head)
	if err != nil {
		return err
	}
	if extent == whole {
		page = append(page, make([]byte, int(head.SizeBytes)-len(page))...)
	}
	if _, err := file.Write(page); err != nil {
		return err
	}
	if err := file.Truncate(int64(head.SizeBytes)); err != nil {
		return err
	}
	if err := file.Chmod(mode); err != nil { // slurmd's umask must not hide it
		return err
	}
	if int(uid) == os.Geteuid() {
		return nil
	}
	return file.Chown(int(uid), int(gid))
}

// Empty takes a page of a job that is over from its user and frees what it holds. Removing it would not, where a process of his
// has it open or mapped, he has made a link to it, or has mounted it elsewhere. A page that is not there is empty.
func Empty(path string) {
	// A user's lease (fcntl(2), F_SETLEASE) blocks open, but not open with O_PATH.
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return
	}
	opened := fmt.Sprintf("/proc/self/fd/%d", fd)
	_ = unix.Chown(opened, os.Geteuid(), os.Getegid())
	_ = unix.Chmod(opened, 0)
	// No file that a process has mapped for writing can have a lease, and a process without a mapping can open the file no more.
	if writable, err := unix.Open(opened, unix.O_WRONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err == nil {
		_ = unix.Ftruncate(writable, 0)
		unix.Close(writable)
	}
}

// Read reads a ledger that its owner may change, cut, or replace by garbage at any time.
// No more devices than the bounds have are returned, and no figure exceeds them. A ledger that is
// none gives ErrLayout. Processes that are over hold nothing, whatever the ledger still has of them.
func Read(path string, job uint32, bounds Bounds) (Usage, error) {
	data, now, err := readHead(path, headBytes)
	if err != nil {
		return Usage{}, fmt.Errorf("read ledger: %w", err)
	}
	usage, err := decode(data, job, bounds, now)
	if err != nil {
		return Usage{}, fmt.Errorf("read ledger %s: %w", path, err)
	}
	return usage, nil
}

// ReadDevices is Read without the steps, which are nearly all of what Read has to read.
func ReadDevices(path string, job uint32, bounds Bounds) ([]DeviceUsage, error) {
	data, now, err := readHead(path, totalsBytes)
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	devices, err := decodeTotals(data, job, &bounds, now)
	if err != nil {
		return nil, fmt.Errorf("read ledger %s: %w", path, err)
	}
	return devices, nil
}

var (
	totalsBytes = binary.Size(ledgerTotals{})
	headBytes   = binary.Size(ledgerHead{})
	stepBytes   = binary.Size(ledgerStep{})
	highAt      = int(unsafe.Offsetof(ledgerTotals{}.SlotsHigh))
	sizeAt      = int(unsafe.Offsetof(ledgerTotals{}.SizeBytes))
	// Where the figures of a job and of a step are.
	figuresAt     = int(unsafe.Offsetof(ledgerTotals{}.ledgerFigures))
	stepFiguresAt = int(unsafe.Offsetof(ledgerStep{}.ledgerFigures))
)

const (
	figureBytes = 8 * MaxDevices
	maxFigures  = 64
)

// readHead reads the beginning of a ledger, and what its living processes hold.
func readHead(path string, most int) ([]byte, *heldNow, error) {
	fd, err := openPage(path, int64(headBytes))
	if err != nil {
		return nil, nil, err
	}
	defer unix.Close(fd)
	data, slotsAt, err := readBefore(fd, path, most)
	if err != nil || len(data) < most {
		return data, nil, err
	}
	return data, readHeld(fd, slotsAt, binary.LittleEndian.Uint32(data[highAt:])), nil
}

// readBefore reads what stands before the slots, as this build lays it out, and says where the slots are. A ledger of another build may
// have more figures or fewer: those that it has not are zero.
func readBefore(fd int, path string, most int) (data []byte, slotsAt int64, err error) {
	data, err = readBounded(fd, path, most)
	if err != nil || len(data) < most {
		return data, 0, err
	}
	size := binary.LittleEndian.Uint32(data[sizeAt:])
	count := FirstFigures + int(size-min(size, LedgerLeast))/FigureBytes
	if count > maxFigures {
		return nil, 0, fmt.Errorf("%s: %w: it says that it has %d bytes", path, ErrLayout, size)
	}
	more := (count - Figures) * figureBytes // of the job, and of each step
	slotsAt = int64(headBytes + more*(1+MaxSteps))
	if count == Figures {
		return data, slotsAt, nil
	}
	figures := min(count, Figures) * figureBytes
	clear(data[figuresAt+figures:])
	if most == totalsBytes {
		return data, slotsAt, nil
	}
	all := make([]byte, slotsAt)
	if n, err := unix.Pread(fd, all, 0); err != nil || n < len(all) {
		return nil, 0, fmt.Errorf("%s: %w: %d bytes, want at least %d: %v", path, ErrLayout, n, len(all), err)
	}
	for step := range MaxSteps {
		from, to := totalsBytes+more+step*(stepBytes+more), totalsBytes+step*stepBytes
		copy(data[to:], all[from:from+stepFiguresAt+figures])
	}
	return data, slotsAt, nil
}

// openPage opens a page that a user owns.
func openPage(path string, least int64) (int, error) {
	// Without package os, whose poller would have to be told of every file.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return -1, fmt.Errorf("%s: %w: its user has a lease on it", path, ErrLayout)
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	var st unix.Stat_t
	switch err := unix.Fstat(fd, &st); {
	case err != nil:
		unix.Close(fd)
		return -1, &os.PathError{Op: "stat", Path: path, Err: err}
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		unix.Close(fd)
		return -1, fmt.Errorf("%s: %w: it is not a regular file", path, ErrLayout)
	case st.Size < least:
		unix.Close(fd)
		return -1, fmt.Errorf("%s: %w: %d bytes, want at least %d", path, ErrLayout, st.Size, least)
	}
	return fd, nil
}

// readBounded reads its beginning.
func readBounded(fd int, path string, most int) ([]byte, error) {
	// read(2), not mmap: a file that shrinks under a mapping would kill us with SIGBUS.
	data := make([]byte, 0, most)
	for len(data) < most {
		n, err := unix.Read(fd, data[len(data):most])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 { // it has shrunk since
			break
		}
		data = data[:len(data)+n]
	}
	return data, nil
}

// decodeTotals decodes what stands before the steps. The processes hold what now says; nil: what the ledger does.
func decodeTotals(data []byte, job uint32, bounds *Bounds, now *heldNow) ([]DeviceUsage, error) {
	if len(data) < totalsBytes {
		return nil, fmt.Errorf("%w: %d bytes, want at least %d", ErrLayout, len(data), totalsBytes)
	}
	var head ledgerTotals
	if _, err := binary.Decode(data, binary.LittleEndian, &head); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLayout, err)
	}
	if head.Magic != LedgerMagic || head.LayoutVersion != LayoutVersion || head.JobID != job {
		return nil, fmt.Errorf("%w: magic %#x, version %d, job %d", ErrLayout, head.Magic, head.LayoutVersion, head.JobID)
	}
	bounds.Bytes = bounds.Bytes[:min(len(bounds.Bytes), MaxDevices)]
	var devices []DeviceUsage
	for i := range bounds.Bytes {
		device := bounds.device(i, head.of(i))
		if now != nil { // after the peak, which what is over has had its part in
			device.UsedBytes = min(now.job[i], bounds.Bytes[i])
		}
		devices = append(devices, device)
	}
	return devices, nil
}

func decode(data []byte, job uint32, bounds Bounds, now *heldNow) (usage Usage, err error) {
	if len(data) < headBytes {
		return Usage{}, fmt.Errorf("%w: %d bytes, want at least %d", ErrLayout, len(data), headBytes)
	}
	if usage.Devices, err = decodeTotals(data, job, &bounds, now); err != nil {
		return Usage{}, err
	}
	for at := range MaxSteps {
		rest := data[totalsBytes+at*stepBytes:]
		if binary.LittleEndian.Uint32(rest) == 0 { // in use
			continue
		}
		var step ledgerStep
		if _, err := binary.Decode(rest, binary.LittleEndian, &step); err != nil {
			return Usage{}, fmt.Errorf("%w: %w", ErrLayout, err)
		}
		mine := StepUsage{Step: step.StepID}
		for i := range bounds.Bytes {
			device := bounds.device(i, step.of(i))
			if now != nil {
				device.UsedBytes = min(now.step[at][i], bounds.Bytes[i])
			}
			mine.Devices = append(mine.Devices, device)
		}
		usage.Steps = append(usage.Steps, mine)
	}
	return usage, nil
}

// device brings a claim about slice i into bounds.
func (b Bounds) device(i int, claimed DeviceUsage) DeviceUsage {
	claimed.PeakBytes = max(claimed.PeakBytes, claimed.UsedBytes)
	return claimed.within(b.Bytes[i], maxCount)
}
