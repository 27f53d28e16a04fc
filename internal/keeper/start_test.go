// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

// A program that begins beside ten waits for the GPU again and again: not for long rounds each time. The others pay for it a second long.
func TestAProgramBeginsBesideTen(t *testing.T) {
	const waits = 25
	percents, loads, all := []int{10}, []timeslices.Load{{Work: 200 * us, Host: 20 * ms}}, []int{0}
	for i := range 10 {
		percents, loads, all = append(percents, 9), append(loads, always(2*ms)), append(all, i+1)
	}
	m := played(t, percents, loads...)
	m.gpu.Groups[0].Off = true
	m.members(all[1:]...)
	m.play(4 * time.Second)
	full := sum(m.had(time.Second))
	m.gpu.Groups[0].Off = false
	m.members(all...)
	began, turns := m.gpu.Now, m.gpu.Groups[0].Turns
	m.until(t, 10*time.Second, func() bool { return m.gpu.Groups[0].Turns >= turns+waits })
	took := m.gpu.Now - began
	if took > 700*ms { // 505 where nobody else is, and 955 beside rounds of 82 ms
		t.Errorf("%d waits took %s", waits, took)
	}
	m.play(time.Second)
	had := sum(m.had(time.Second))
	near(t, "all have afterwards", had, full, 3)
}

func sum(all []float64) (together float64) {
	for _, one := range all {
		together += one
	}
	return together
}

// Who begins one program after another shortens no round for long.
func TestStartsAreBounded(t *testing.T) {
	var s share.Starting
	short := 0
	for at := time.Hour; at < time.Hour+100*time.Second; at += 500 * ms {
		if s.Afford(at) {
			short++
		}
	}
	near(t, "of the time, percent", float64(short)/2, 25, 6)
}
