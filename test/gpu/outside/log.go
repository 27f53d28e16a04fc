// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/test/gpu/gauge"
)

// switchLog is a GPU's log of context switches, added up.
type switchLog struct {
	*turns
	driver  *channels.Driver
	gpu     *channels.GPU
	log     *channels.Log
	dropped uint64 // as the driver says
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func openLog(g *gauge.GPU) *switchLog {
	l := &switchLog{driver: must(channels.Open("/dev/nvidiactl"))}
	l.gpu = must(l.driver.GPU(g.Address, fmt.Sprintf("/dev/nvidia%d", g.Minor)))
	l.log = must(l.gpu.OpenLog())
	l.turns = newTurns(l.clockNS())
	return l
}

func (l *switchLog) close() {
	l.log.Close()
	l.gpu.Close()
	l.driver.Close()
}

// clockNS is the GPU's clock, that of the records.
func (l *switchLog) clockNS() int64 {
	if l.gpu == nil {
		return 0 // of no GPU, in tests
	}
	return must(l.gpu.ClockNS())
}

// poll takes what is new. With flush the driver reads the GPU's own ring at once, otherwise it does when it likes.
func (l *switchLog) poll(flush bool) {
	records, dropped, err := l.log.Poll(flush)
	if err != nil {
		panic(err)
	}
	l.dropped += dropped
	for _, r := range records {
		l.take(r)
	}
}

// disable does it, or enables, as root's own client: the driver compares no owner in this call.
func (l *switchLog) disable(disable bool, all []handle) int {
	gone, err := l.gpu.Disable(disable, asChannels(all))
	if len(gone) > 0 {
		err = channels.ErrNotTheirs
	}
	return statusOf(err)
}
