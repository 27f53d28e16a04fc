// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant_test

import (
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

func TestWhichGrantsAreOfOneRun(t *testing.T) {
	at := time.Unix(1_800_000_000, 0)
	was := grant.Grant{Job: 7, Restart: 1, UID: 1001, Submitted: at, Entitlement: request.Entitlement{Slices: 1, MemMiB: 3000}}
	with := func(change func(*grant.Grant)) grant.Grant {
		g := was
		change(&g)
		return g
	}
	for _, tt := range []struct {
		name string
		is   grant.Grant
		want bool
	}{
		{"the same", was, true},
		{"another job", with(func(g *grant.Grant) { g.Job = 8 }), false},
		{"another run", with(func(g *grant.Grant) { g.Restart = 2 }), false},
		{"another user", with(func(g *grant.Grant) { g.UID = 1002 }), false},
		{"submitted at another time", with(func(g *grant.Grant) { g.Submitted = at.Add(time.Second) }), false},
		{"changed while it runs", with(func(g *grant.Grant) { g.Entitlement.MemMiB = 4000 }), true},
		{"other memory, and no time", with(func(g *grant.Grant) { g.Entitlement.MemMiB, g.Submitted = 4000, time.Time{} }), false},
		{"the same memory, and no time", with(func(g *grant.Grant) { g.Submitted = time.Time{} }), true},
		{"nothing is known", with(func(g *grant.Grant) { g.Entitlement, g.Submitted = request.Entitlement{}, time.Time{} }), true},
	} {
		if got := was.IsSameRun(tt.is); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	one, other := was, was
	one.SLUID, other.SLUID = "s0000000000001", "s0000000000002"
	if one.IsSameRun(other) {
		t.Error("two SLUIDs are one run")
	}
}
