// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseShards(t *testing.T) {
	for text, want := range map[string]struct {
		count int64
		gpus  []ShardsOfGPU
	}{
		"":                               {0, nil},
		"vgpu(CNT:1),gpumem(CNT:3000)":   {0, nil},
		"gpu:h200:1(IDX:0),sharded:3000": {0, nil},
		"vgpu(CNT:1),gpumem(CNT:3000),gpucores(CNT:60),shard:86263(0/143771,86263/143771)": {86263, []ShardsOfGPU{{0, 143771}, {86263, 143771}}},
		"shard:h200:3000(3000/143771,-/143771)":                                            {3000, []ShardsOfGPU{{3000, 143771}, {0, 143771}}},
		"shard:h200:3000(3000/143771,0/40960)":                                             {3000, []ShardsOfGPU{{3000, 143771}, {0, 40960}}},
		"shard:h200:5(5/8,0/0),shard:l4:2(0/0,2/4)":                                        {7, []ShardsOfGPU{{5, 8}, {2, 4}}},
		"shard:0(0/8,0/8)":                      {0, nil},
		"gres/vgpu:1,gres/shard:1000":           {1000, nil},
		"gres:shard:2K":                         {2048, nil},
		"vgpu:1,gpumem:3000,shard:3000,shard:1": {3001, nil},
	} {
		got, err := ParseShards(text)
		if diff := cmp.Diff(Shards{want.count, want.gpus}, got); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
	}
	if got, _ := ParseShards("shard:h200:5(5/8,0/8,1/8),gpu:0"); got.Count != 0 {
		t.Errorf("parts that do not come to the whole: %+v", got)
	}
	if got, _ := ParseShards("shard:6(5/8,0/8,1/8)"); !cmp.Equal(got.Picked(), []int{0, 2}) {
		t.Errorf("picked %v", got.Picked())
	}
	for _, text := range []string{"shard:3(3)", "shard:3(4/3)", "shard:3(-3/9,6/9)", "shard:3(IDX:0)", "shard:99999999999999",
		"shard:1(1/2),shard:1(1/2,0/2)", strings.Repeat("x", maxGRESBytes+1), "shard:17179869184,shard:1"} {
		if got, err := ParseShards(text); err == nil {
			t.Errorf("%.60q: %+v", text, got)
		}
	}
}
