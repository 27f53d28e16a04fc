// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// Where Slurm picked the GPU by shards, they are the memory of a step that names none, and without them it has no GPU.
func TestShardsOfAStep(t *testing.T) {
	held := grant.Grant{Shards: 57509, Entitlement: request.Entitlement{Slices: 1, MemMiB: 3000, SMPercent: 40}}
	for perNode, want := range map[string]request.Entitlement{
		"gres/vgpu:1,gres/gpumem:3000,gres/gpucores:40,gres/shard:57509": held.Entitlement,
		"gres/gpumem:1000,gres/shard:1000":                               {MemMiB: 1000},
		"gres/shard:1200":                                                {MemMiB: 1200},
		"gres/vgpu:1,gres/gpucores:20,gres/shard:57509":                  {Slices: 1, MemMiB: 3000, SMPercent: 20},
		"": {},
	} {
		given, err := StepGRES{Known: true, PerNode: perNode}.parse(held)
		if err != nil || *given != want {
			t.Errorf("%q: got %+v, %v", perNode, given, err)
		}
	}
	for perNode, says := range map[string]string{
		"gres/gpumem:1000":             "--gres=vgpu:1,gpumem:1000: the step has no shards, and so no GPU: add shard:N",
		"gres/vgpu:1,gres/gpucores:20": "--gres=vgpu:1,gpucores:20: the step has no shards",
		"gres/shard:3(4/3)":            "GRES of the step: read GRES",
	} {
		if _, err := (StepGRES{Known: true, PerNode: perNode}).parse(held); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want %q", perNode, err, says)
		}
	}
	if given, err := (StepGRES{Known: true, PerNode: "gres/shard:5"}).parse(grant.Grant{}); err != nil || !given.IsZero() {
		t.Errorf("shards of somebody else: %+v, %v", given, err)
	}
}
