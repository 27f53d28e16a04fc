// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
)

// A node that cannot be read has the slices that it had; what is not there yet is looked for again.
func TestAScoutTellsOfNoNodeThatItCannotRead(t *testing.T) {
	looks := make(chan struct{}, 100)
	answers := []struct {
		node Node
		err  error
	}{{Node{GPUs: []NodeGPU{{}}}, errors.New("its pages are not there yet")}, {Node{}, errors.New("damaged")}, {Node{GPUs: []NodeGPU{{}, {}}}, nil}}
	count := 0
	s := beginScout(func() (Node, error) {
		a := answers[min(count, len(answers)-1)]
		count++
		looks <- struct{}{}
		return a.node, a.err
	}, nil)
	defer s.end()
	for _, gpus := range []int{1, 2} {
		select {
		case node := <-s.found:
			if len(node.GPUs) != gpus {
				t.Errorf("%d GPUs, want %d", len(node.GPUs), gpus)
			}
		case <-time.After(time.Minute):
			t.Fatal("nothing is told")
		}
	}
	if len(looks) != 3 {
		t.Errorf("%d looks", len(looks))
	}
	select {
	case <-s.found:
		t.Error("it looks again, and nothing has changed")
	case <-time.After(300 * ms):
	}
}

// A prolog waits for the look at its job's slices. Where nobody looked for a while it comes at once; changes without end have no more than this.
func TestAChangeIsLookedAtAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changed := make(chan struct{}, 1)
		s := beginScout(func() (Node, error) { return Node{GPUs: []NodeGPU{{}}}, nil }, changed)
		defer s.end()
		<-s.found
		for pause, want := range map[time.Duration]time.Duration{time.Second: 0, scoutEach: 0, 0: scoutEach, scoutEach / 4: scoutEach - scoutEach/4} {
			time.Sleep(time.Second)
			changed <- struct{}{}
			<-s.found
			time.Sleep(pause)
			began := time.Now()
			changed <- struct{}{}
			<-s.found
			if took := time.Since(began); took != want {
				t.Errorf("%s after a look the next one takes %s, want %s", pause, took, want)
			}
		}
	})
}

// A process whose page names nothing for a moment is not a new one afterwards: what was seen of it counts on.
func TestWhatIsKnownOfAProcessStays(t *testing.T) {
	m := played(t, []int{30, 70}, always(2*ms), always(2*ms))
	m.members(0, 1)
	m.play(time.Second)
	before := m.k.owners[audit.Process{PID: 100, StartTicks: m.start(100)}]
	m.members(1)
	if len(before.groups) != 0 {
		t.Error("its groups are kept")
	}
	m.play(200 * ms)
	m.members(0, 1)
	if m.k.owners[audit.Process{PID: 100, StartTicks: m.start(100)}] != before || len(before.groups) != 1 {
		t.Error("it is another one")
	}
}

// Looks that take longer are fewer: whoever writes to his page without end has no more of a core for it, and a change now and then is seen at once.
func TestLooksAreBounded(t *testing.T) {
	for _, look := range []time.Duration{2 * ms, 5 * ms, 20 * ms} {
		var spent looked
		now, worked := time.Now(), time.Duration(0)
		for end := now.Add(time.Minute); now.Before(end); worked += look {
			now = now.Add(look + spent.rest(now, look))
		}
		if part := float64(worked) / float64(time.Minute); part > 0.05 {
			t.Errorf("looks of %s take %.3f of a core", look, part)
		}
		now = now.Add(time.Minute)
		for range 10 {
			if rest := spent.rest(now, look); rest != scoutEach {
				t.Errorf("%s after a look of %s that nobody asked for lately", rest, look)
			}
			now = now.Add(scoutEach + look)
		}
	}
	var spent looked
	if rest := spent.rest(time.Now(), time.Minute); rest != longestRest {
		t.Errorf("others wait for %s", rest)
	}
}
