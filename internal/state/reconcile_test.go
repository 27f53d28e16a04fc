// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestDoubtful(t *testing.T) {
	now := sliceOf(1).Since.Time().Add(2 * time.Minute)
	young := sliceOf(3)
	young.Since = MillisOf(now.Add(-graceTime + time.Second))
	second := sliceOf(2)
	second.Device = "GPU-other"
	clock := sliceOf(4)
	clock.Since = MillisOf(now.Add(time.Hour)) // a clock that was set back
	got := Doubtful([]Slice{sliceOf(1), sliceOf(2), second, young, clock}, map[uint32]bool{1: true}, now)
	if diff := cmp.Diff([]Run{{Job: 2}, {Job: 4}}, got); diff != "" {
		t.Error(diff)
	}
}

type answers map[uint32]func() (bool, error)

func (a answers) Finished(_ context.Context, job uint32, _ int) (bool, error) { return a[job]() }

func TestOnlyThoseThatTheControllerCallsFinishedAreGone(t *testing.T) {
	away := errors.New("unable to contact")
	asked := 0
	controller := answers{
		1: func() (bool, error) { asked++; return true, nil },
		2: func() (bool, error) { asked++; return false, nil },
		3: func() (bool, error) { asked++; return false, away },
		4: func() (bool, error) { asked++; return true, nil },
	}
	got, err := Over(context.Background(), []Run{{1, 0}, {2, 0}, {3, 0}, {4, 2}}, controller)
	if !errors.Is(err, away) || asked != 4 {
		t.Errorf("asked %d times, %v", asked, err)
	}
	if diff := cmp.Diff(map[Run]bool{{1, 0}: true, {2, 0}: false, {4, 2}: true}, got, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	ctx, cancel := context.WithCancel(context.Background())
	controller[1] = func() (bool, error) { cancel(); return false, ctx.Err() }
	asked = 0
	if got, _ := Over(ctx, []Run{{1, 0}, {4, 2}}, controller); len(got) != 0 || asked != 0 {
		t.Errorf("after the time was over: asked %d more, over %v", asked, got)
	}
}
