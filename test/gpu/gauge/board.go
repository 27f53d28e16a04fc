// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package gauge is what trials on a GPU measure by: what its tenants say of themselves, and what NVML says of it.
package gauge

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"sort"

	"golang.org/x/sys/unix"
)

// Board is a file that a tenant and who measures it share; ../outside/programs/tenant.cu says what stands where.
type Board []byte

// Words of a board.
const (
	BoardBytes = 1 << 20

	Ready        = 0
	Go           = 8
	Stop         = 16
	KernelMS     = 24
	Loops        = 32 // of a kernel
	Done         = 64 // of each context
	MostContexts = 16
	Requests     = 192
	PID          = 208
	Latencies    = 4096
	MostLatency  = 200000
)

var le = binary.LittleEndian

// NewBoard makes one. Boards are registered with CUDA, so the file is one in memory.
func NewBoard(name string, mode os.FileMode) (Board, error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, fmt.Errorf("make a board: %w", err)
	}
	defer file.Close()
	if err := file.Chmod(mode); err != nil { // whatever the umask
		return nil, fmt.Errorf("make a board: %w", err)
	}
	if err := file.Truncate(BoardBytes); err != nil {
		return nil, fmt.Errorf("make a board: %w", err)
	}
	b, err := unix.Mmap(int(file.Fd()), 0, BoardBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map a board: %w", err)
	}
	return b, nil
}

// Get gives a word.
func (b Board) Get(at int) uint64 { return le.Uint64(b[at:]) }

// Set makes a word 1.
func (b Board) Set(at int) { le.PutUint64(b[at:], 1) }

// KernelMS is how long a kernel took alone.
func (b Board) KernelMS() float64 { return math.Float64frombits(b.Get(KernelMS)) }

// LikeAnother gives the tenant the kernel that another has measured, so that it does not measure its own.
func (b Board) LikeAnother(other Board) { copy(b[KernelMS:Loops+8], other[KernelMS:Loops+8]) }

// Done is how many kernels have ended.
func (b Board) Done() (n uint64) {
	for i := range MostContexts {
		n += b.Get(Done + 8*i)
	}
	return n
}

// Latencies are of the requests from the given one on, in milliseconds.
func (b Board) Latencies(from uint64) (n int, p50, p99 float64) {
	var all []float64
	for i := from; i < b.Get(Requests); i++ {
		all = append(all, float64(math.Float32frombits(le.Uint32(b[Latencies+4*(i%MostLatency):]))))
	}
	if len(all) == 0 {
		return 0, 0, 0
	}
	sort.Float64s(all)
	return len(all), all[len(all)/2], all[min(len(all)-1, len(all)*99/100)]
}
