// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/test/gpu/gauge"
)

const logged = 1500 * time.Millisecond

// turns says from the driver's log which turns each job's processes had.
func (t *trial) turns(all []*job) string {
	d := must(channels.Open(t.controlDevice()))
	defer d.Close()
	on := t.gpu()
	g := must(d.GPU(on.Address, filepath.Join(t.devices(), fmt.Sprintf("nvidia%d", on.Minor))))
	defer g.Close()
	l := must(g.OpenLog())
	defer l.Close()
	began, lengths := map[uint32]int64{}, map[uint32][]int64{}
	dropped := uint64(0)
	for end := time.Now().Add(logged); time.Now().Before(end); t.pause(10 * time.Millisecond) {
		records, n, err := l.Poll(true)
		if err != nil {
			panic(err)
		}
		dropped += n
		for _, r := range records {
			switch at := began[r.PID]; {
			case r.Starts():
				began[r.PID] = r.AtNS
			case r.Ends() && at != 0:
				lengths[r.PID] = append(lengths[r.PID], r.AtNS-at)
				began[r.PID] = 0
			}
		}
	}
	var said []string
	for _, j := range all {
		var theirs []int64
		processes := 0
		for _, b := range j.boards {
			if mine := lengths[uint32(b.Get(gauge.PID))]; len(mine) > 0 {
				theirs, processes = append(theirs, mine...), processes+1
			}
		}
		slices.Sort(theirs)
		text := fmt.Sprintf("%d processes on, %d turns", processes, len(theirs))
		if n := len(theirs); n > 0 {
			ms := func(part int) float64 { return float64(theirs[min(n-1, n*part/100)]) / 1e6 }
			text += fmt.Sprintf(" of %.2f %.2f %.2f %.2f %.2f ms (least, 10, 50, 90 of 100, most)", ms(0), ms(10), ms(50), ms(90), ms(100))
		}
		said = append(said, text)
	}
	return fmt.Sprintf("turns in %.1f s, %d dropped: %s", logged.Seconds(), dropped, strings.Join(said, "; "))
}

// devices is the folder of device files.
func (t *trial) devices() string {
	if t.simulated {
		return t.Home.Path("sim", "simgpu.d")
	}
	return "/dev"
}

func (t *trial) controlDevice() string {
	return must(filepath.EvalSymlinks(filepath.Join(t.devices(), "nvidiactl")))
}
