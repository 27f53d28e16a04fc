// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/gpu/gauge"
	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

// lone holds one that is alone to a share: it is on for a fraction of each period. By the clock the fraction is the share; by the meter it follows GPM.
type lone struct {
	gpu     *gauge.GPU
	w       *tenant
	share   float64
	period  time.Duration
	byMeter bool

	fraction float64
	credit   float64 // seconds of being on that are owed
	calls    int
	on       time.Duration
	lasted   time.Duration
}

// offTakes is what goes by until a call has taken it off.
const offTakes = 500 * time.Microsecond

func (c *lone) onePeriod() {
	period := c.period.Seconds()
	want := c.fraction*period + c.credit
	if want <= 0.001 {
		return
	}
	began := time.Now()
	c.w.off(false)
	c.calls++
	if want < period*0.985 {
		time.Sleep(ofSeconds(want) - offTakes)
		c.w.off(true)
		c.calls++
	} else {
		time.Sleep(c.period)
	}
	c.credit = max(-period, min(period/2, want-time.Since(began).Seconds()))
	c.on += time.Since(began)
}

func (c *lone) until(end time.Time) {
	held := timeslices.Cap{Share: c.share}
	c.fraction = held.Next(0)
	began := time.Now()
	sample, sampledAt, next := c.gpu.Sample(), began, began
	for time.Now().Before(end) {
		c.onePeriod()
		next = next.Add(c.period)
		if nap := time.Until(next); nap > 0 {
			time.Sleep(nap)
		} else {
			next = time.Now()
		}
		if c.byMeter && time.Since(sampledAt) > window {
			now := c.gpu.Sample()
			c.fraction = held.Next(c.gpu.Engine(sample, now) / 100)
			sample, sampledAt = now, time.Now()
		}
	}
	c.lasted = time.Since(began)
	c.w.off(false)
}

func (t *trial) caps() {
	for _, load := range []string{"ms=2", "ms=0.1", "ms=20", "ms=1 host=1", "ms=1 host=0.2"} {
		shares := []float64{0.1, 0.3, 0.5, 0.9}
		if strings.Contains(load, "host=1") {
			shares = shares[:2] // it asks for half
		}
		w := t.start(load)
		letGo(w)
		for _, byMeter := range []bool{false, true} {
			for _, share := range shares {
				t.capAlone(lone{gpu: t.gpu, w: w, share: share, period: 50 * time.Millisecond, byMeter: byMeter})
			}
			if load == "ms=2" {
				for _, period := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond} {
					t.capAlone(lone{gpu: t.gpu, w: w, share: 0.3, period: period, byMeter: byMeter})
				}
			}
		}
		t.stop(w)
	}
}

func (t *trial) capAlone(c lone) {
	warm, by := time.Second, "by the clock"
	if c.byMeter {
		warm, by = 2200*time.Millisecond, "by the meter"
	}
	const seconds = 3
	ended := make(chan struct{})
	go func() { c.until(time.Now().Add(warm + settling + seconds*time.Second)); close(ended) }()
	time.Sleep(warm - settling)
	m := t.measure(seconds, looking{}, c.w)
	<-ended
	t.row(fmt.Sprintf("%s held to %.0f, periods of %d ms, %s", c.w.load, 100*c.share, c.period.Milliseconds(), by),
		fmt.Sprintf("counted %.2f", m.counted[0]), fmt.Sprintf("GPM %.2f", m.gpm),
		fmt.Sprintf("on for %.1f of the time, %d calls", 100*c.on.Seconds()/c.lasted.Seconds(), c.calls))
}
