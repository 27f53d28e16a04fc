// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"fmt"
	"math"
	"testing"
)

// Whoever goes off leaves the others more, so that these reach what they may have sooner.
func TestPartsOfAPeriod(t *testing.T) {
	for _, c := range []struct {
		all  []Rival
		want []float64
	}{
		{[]Rival{{1, 1, .3, false}}, []float64{.3}},
		{[]Rival{{1, .5, .3, false}}, []float64{.6}},
		{[]Rival{{1, .2, .3, false}}, []float64{1}},
		{[]Rival{{1, 1, .25, false}, {1, 1, .25, false}}, []float64{.5, .5}},
		{[]Rival{{30, 1, .3, false}, {50, 1, .5, false}}, []float64{.8, .8}},
		{[]Rival{{1, 1, .1, false}, {1, 1, .4, false}}, []float64{.2, .5}},
		{[]Rival{{1, 1, .3, false}, {1, .2, 1, false}}, []float64{.375, 1}},
		{[]Rival{{1, 1, .3, false}, {1, 1, 1, true}}, []float64{.3, 1}},
		{[]Rival{{1, 1, .1, false}, {1, 1, .102, false}, {1, 1, 1, false}}, []float64{.3025, .3025, 1}},
		{nil, nil},
	} {
		had := Parts(c.all)
		for i, want := range c.want {
			if math.Abs(had[i]-want) > .001 {
				t.Errorf("%v: %v, want %v", c.all, had, c.want)
			}
		}
	}
}

func TestLevelsFillTheGPU(t *testing.T) {
	for _, c := range []struct {
		all         []Rival
		want, could []float64
	}{
		{[]Rival{{1, 1, 1, false}, {3, 1, 1, false}}, []float64{.25, .75}, []float64{.25, .75}},
		{[]Rival{{1, .1, 1, false}, {1, 1, 1, false}}, []float64{.1, .9}, []float64{.5, .9}},
		{[]Rival{{1, .1, 1, false}, {1, .2, 1, false}, {2, 1, 1, true}}, []float64{.1, .2, 0}, []float64{.8, .9, 0}},
	} {
		levels, _ := levelsOf(c.all)
		if had := fmt.Sprintf("%.2f %.2f", levels, Could(c.all)); had != fmt.Sprintf("%.2f %.2f", c.want, c.could) {
			t.Errorf("%v: %v", c.all, had)
		}
	}
}

// One that takes what it can have asks for all, at once; one that does not is found to over half a second.
func TestWhatOneAsksFor(t *testing.T) {
	var d Demand
	if d.Part() != 1 {
		t.Errorf("unknown: %v", d.Part())
	}
	for range 30 {
		d.Look(100*ms, 50*ms, 50*ms, .1)
	}
	if math.Abs(d.Part()-.2) > .01 {
		t.Errorf("a fifth while it is on: %v", d.Part())
	}
	if had := d.Uses(100*ms, 50*ms, 5*ms); math.Abs(had-.05) > .001 {
		t.Errorf("beside others it uses %v", had)
	}
	if d.Look(100*ms, 100*ms, 10*ms, .095); d.Part() != 1 {
		t.Errorf("takes all that it can have: %v", d.Part())
	}
}
