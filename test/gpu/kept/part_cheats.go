// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	ofCheat     = 60.0 // percent
	ofNeighbour = 40.0
	mostToAct   = 2 * time.Second
	thawedAgain = 14.0 // seconds: who is frozen for ten goes on in it
)

// cheat is one way around a share.
type cheat struct {
	name    string
	load    string // else kernels of 20 ms
	around  string // as of want
	options string // of sbatch
	turns   bool   // beside a third, and a neighbour who waits for its steps, so that some are off by turns
	lives   bool   // begins when its job does: it waits for nobody's word
	// preload: where the guards stand over the driver's libraries, who leaves the preload out has the library all the same.
	preload bool
}

// mountsCutOff are mounts as a user may make them.
const mountsCutOff = "unshare -rm %s"

func (t *trial) ways() []cheat {
	kill := "while true; do timeout -s KILL %s %%s; done"
	ways := []cheat{{name: "honest"}, {name: "honest, in turns", turns: true},
		{name: "its mounts cut off", around: mountsCutOff}}
	if t.simulated {
		for _, how := range []string{"slice", "enable", "idle", "contexts"} {
			ways = append(ways, cheat{name: how, around: "f() { shift; vgpu-cheat " + how + ` "$@"; }; f %s`, turns: how == "enable"})
		}
		return append(ways, cheat{name: "no library", around: "vgpu-cheat raw 20000; : %s", lives: true},
			cheat{name: "lives of 0.2 s", around: fmt.Sprintf(kill, "0.2"), lives: true})
	}
	for _, how := range []string{"slice", "enable", "idle"} {
		ways = append(ways, cheat{name: how, around: fmt.Sprintf("%s --programs %s --cheat %s %%s", filepath.Join(t.programs, "outside"), t.programs, how), turns: how == "enable",
			lives: how == "slice"}) // which is found before its tenant is ready
	}
	return append(ways, cheat{name: "a context each 50 ms", load: "ms=20 more=50", options: "--vgpu-mem=60%"},
		cheat{name: "without its environment", around: "env -i CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES %s"},
		cheat{name: "no library", around: "env -i CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES %s", preload: true},
		cheat{name: "lives of 1 s", load: "ms=100", around: fmt.Sprintf(kill, "1"), lives: true}) // of which some 0.4 s are a context's
}

func (t *trial) cheats() (cases []trialCase) {
	for _, way := range t.ways() {
		cases = append(cases, trialCase{way.name, func(t *trial) { t.besideCheat(way) }})
	}
	return cases
}

// besideCheat lets the neighbour begin, then who cheats.
func (t *trial) besideCheat(way cheat) {
	if way.preload {
		defer t.isolated(t.Isolation)
		t.isolated("preload")
	}
	if way.load == "" {
		way.load = "ms=20"
	}
	neighbours, share := []want{{load: "ms=2", share: ofNeighbour}}, ofCheat
	if way.turns {
		share = ofCheat / 2
		neighbours = []want{{load: "ms=1 host=0.1", share: ofNeighbour}, {load: "ms=2", share: share}}
	}
	t.measured(way.load)
	from := t.logSize()
	others := t.start(neighbours...)
	neighbour := others[0]
	letGo(others...)
	t.pause(time.Second)
	cheats := want{load: way.load, share: share, around: way.around, options: way.options}
	var attacker *job
	if way.lives {
		attacker = t.submit(cheats, t.like[kernel(way.load)])
		letGo(attacker)
		t.until("the cheat's job", getsReady, func() bool { return t.counted(attacker).LookedNs != 0 })
	} else {
		attacker = t.start(cheats)[0]
		letGo(attacker)
	}
	first := t.window(mostToAct.Seconds(), neighbour)
	seconds := thawedAgain
	if t.simulated {
		seconds = t.seconds
	}
	f := t.window(seconds, append(others, attacker)...)
	page := t.counted(attacker)
	lines := t.logged(from)
	t.row(way.name, verdict(f.had[0] >= ofNeighbour-1), fmt.Sprintf("the neighbour of %.0f had %.1f in the first %.0f s, %.1f in the next %.0f", ofNeighbour, first.had[0], first.seconds, f.had[0], f.seconds),
		fmt.Sprintf("frozen %d times, flags %#x", page.Frozen, page.Flags), fmt.Sprintf("%d lines in the log: %s", len(lines), lastOf(lines, 2)), strings.Join(f.columns(), ", "))
}

func lastOf(lines []string, n int) string {
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}

// isolated has jobs that start from now on go by another way to the library.
func (t *trial) isolated(how string) {
	t.Isolation = how
	if err := t.WriteConfig(); err != nil {
		panic(err)
	}
	parent, _ := t.vgpuds()
	if parent != 0 {
		unix.Kill(parent, unix.SIGHUP)
	}
}
