// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import "sync"

// memory is the driver's, of which files show the pages.
type memory struct {
	readOnly bool

	lock  sync.Mutex
	bytes []byte
	nodes []uint64
}

const mostMemoryBytes = 64 << 20

func (m *memory) shownIn(node uint64) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.nodes = append(m.nodes, node)
}

func (m *memory) copyTo(data []byte, offset int) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if offset < len(m.bytes) {
		copy(data, m.bytes[offset:])
	}
}

// change is a part of a memory that the kernel is to be given.
type change struct {
	m           *memory
	first, last int
}

func (m *memory) put(offset int, data []byte) change {
	m.lock.Lock()
	defer m.lock.Unlock()
	copy(m.bytes[offset:], data)
	return change{m, offset, offset + len(data)}
}

// store gives it to the kernel as it is now.
func (c change) store(to *connection) {
	c.m.lock.Lock()
	data := append([]byte(nil), c.m.bytes[c.first:c.last]...)
	nodes := append([]uint64(nil), c.m.nodes...)
	c.m.lock.Unlock()
	for _, node := range nodes {
		to.store(node, c.first, data)
	}
}
