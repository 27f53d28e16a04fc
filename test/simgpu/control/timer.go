// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/slurm-vgpu/slurm-vgpu/test/simgpu/control/runlist"
	"golang.org/x/sys/unix"
)

// timer wakes the driver when a kernel may have ended. The runtime's own timers are up to a millisecond late where nothing else goes on.
type timer struct {
	fd int
}

func newTimer() (*timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a timer: %w", err)
	}
	return &timer{fd: fd}, nil
}

// set is for a moment of the machine's clock; Never ends it. One that has passed wakes soon.
func (t *timer) set(atNS int64) {
	const soonNS = 20_000
	value := unix.ItimerSpec{}
	if atNS != runlist.Never {
		value.Value = unix.NsecToTimespec(max(atNS, clockNS()+soonNS))
	}
	unix.TimerfdSettime(t.fd, unix.TFD_TIMER_ABSTIME, &value, nil)
}

// wake calls each time.
func (t *timer) wake(what func()) {
	buffer := make([]byte, 8)
	for {
		if _, err := unix.Read(t.fd, buffer); err == nil {
			what()
		}
	}
}
