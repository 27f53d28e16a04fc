// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// BoardSlice is one slice of a GPU, as the other jobs on it may know it.
type BoardSlice struct {
	Job       uint32
	Device    uint32 // which of the job's slices: index in its limits, its ledger and its claims
	SMPercent uint32 // the job's; 0: no cap
	Flags     uint32 // Elastic
	UID       uint32
	Turns     uint32 // layout of its claims
}

// Board is what stands on a GPU's board.
type Board struct {
	KeptBy Keeper
	Slices []BoardSlice
}

// ErrBoardFull is wrapped when a board has no room for some of the slices; the others are on it.
var ErrBoardFull = errors.New("the board has no room for all slices of the GPU")

// WriteBoard puts the slices of a GPU on its board. The caller holds the lock of the state. Processes
// of running jobs have the file mapped, so it is changed in place, and only if it says something
// else; a file that is no board of this layout is of no use to them, and is replaced.
func WriteBoard(path string, board Board) error {
	var full error
	if len(board.Slices) > MaxBoardSlices {
		full = fmt.Errorf("write board %s: %w: %d, at most %d", path, ErrBoardFull, len(board.Slices), MaxBoardSlices)
		board.Slices = board.Slices[:MaxBoardSlices]
	}
	page, err := readBoard(path)
	switch {
	case err == nil && page.Sequence%2 == 0 && page.says(board):
		return full
	case err == nil:
		err = changeBoard(path, board)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, ErrLayout), errors.Is(err, trusted.ErrUntrusted):
		err = makeBoard(path, board)
	}
	if err != nil {
		return fmt.Errorf("write board: %w", err)
	}
	return full
}

// ReadBoard reads a trusted board that nobody is writing: under the lock of the state, or when a
// torn one does no harm.
func ReadBoard(path string) (Board, error) {
	page, err := readBoard(path)
	if err != nil {
		return Board{}, fmt.Errorf("read board: %w", err)
	}
	board := Board{KeptBy: Keeper(page.KeptBy)} // its slices are nil where there is none
	for _, s := range page.Slice[:page.Count] {
		board.Slices = append(board.Slices, BoardSlice{Job: s.JobID, Device: s.Device, SMPercent: s.SMPercent, Flags: s.Flags, UID: s.UID, Turns: s.TurnsVersion})
	}
	return board, nil
}

func readBoard(path string) (*boardPage, error) {
	const size = int(unsafe.Sizeof(boardPage{}))
	data, err := trusted.ReadFile(path, int64(size))
	if err != nil {
		return nil, err
	}
	if len(data) != size {
		return nil, fmt.Errorf("%s: %w: %d bytes, want %d", path, ErrLayout, len(data), size)
	}
	// Not encoding/binary, which takes each of a thousand fields by itself: every commit comes here.
	page := (*boardPage)(unsafe.Pointer(unsafe.SliceData(data)))
	if page.Magic != boardMagic || page.LayoutVersion != VgpudVersion || page.Count > MaxBoardSlices {
		return nil, fmt.Errorf("%s: %w: magic %#x, version %d, %d slices", path, ErrLayout, page.Magic, page.LayoutVersion, page.Count)
	}
	return page, nil
}

func (page *boardPage) says(board Board) bool {
	if int(page.Count) != len(board.Slices) || page.KeptBy != uint32(board.KeptBy) {
		return false
	}
	for i := range board.Slices {
		is, want := &page.Slice[i], &board.Slices[i]
		if is.JobID != want.Job || is.Device != want.Device || is.SMPercent != want.SMPercent || is.Flags != want.Flags || is.UID != want.UID ||
			is.TurnsVersion != want.Turns {
			return false
		}
	}
	return true
}

func (page *boardPage) put(board Board) {
	page.KeptBy, page.Count = uint32(board.KeptBy), uint32(len(board.Slices))
	page.Slice = [MaxBoardSlices]boardSlice{}
	for i, s := range board.Slices {
		page.Slice[i] = boardSlice{JobID: s.Job, Device: s.Device, SMPercent: s.SMPercent, Flags: s.Flags, UID: s.UID, TurnsVersion: s.Turns}
	}
}

// makeBoard puts a whole file in place at once: a process never finds half a board.
func makeBoard(path string, board Board) error {
	page := boardPage{Magic: boardMagic, LayoutVersion: VgpudVersion, SizeBytes: uint32(binary.Size(boardPage{}))}
	page.put(board)
	data, err := binary.Append(nil, binary.LittleEndian, page)
	if err != nil {
		return err
	}
	return trusted.WriteFile(path, data, 0o644)
}

// changeBoard writes under the sequence counter. A writer that is killed leaves it odd: readers then
// go by what they knew before, and the next writer finds it so and writes all of it again.
func changeBoard(path string, board Board) error {
	return inPlace(path, binary.Size(boardPage{}), func(data []byte) {
		page := (*boardPage)(unsafe.Pointer(unsafe.SliceData(data))) // the mirror has C's offsets, which a test compares
		odd := atomic.LoadUint32(&page.Sequence) | 1
		atomic.StoreUint32(&page.Sequence, odd)
		crashpoint.At("ledger/board-begun")
		page.put(board)
		atomic.StoreUint32(&page.Sequence, odd+1)
	})
}

// inPlace changes a file of root's that processes have mapped. Nobody else can cut it.
func inPlace(path string, size int, change func(data []byte)) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size != int64(size) {
		return fmt.Errorf("%s: %w: %d bytes, want %d", path, ErrLayout, st.Size, size)
	}
	data, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return &os.PathError{Op: "map", Path: path, Err: err}
	}
	change(data)
	if err := unix.Munmap(data); err != nil {
		return &os.PathError{Op: "unmap", Path: path, Err: err}
	}
	return nil
}
