// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

func TestParseNodes(t *testing.T) {
	got, err := parseNodes("n2        |long    |mixed     |gpu:h200:2(S:0),vgpu:20,gpumem:287542,gpucores:200|gpu:h200:0(IDX:N/A),vgpu:2,gpumem:6000,gpucores:60|\n" +
		"n2        |short*  |mixed     |gpu:h200:2(S:0),vgpu:20,gpumem:287542,gpucores:200|gpu:h200:0(IDX:N/A),vgpu:2,gpumem:6000,gpucores:60|\n" +
		"c1        |short*  |idle      |(null)|(null)|\n" +
		"n1        |short*  |drained*  |vgpu:10,gpumem:1000,gpucores:100|vgpu:0,gpumem:0,gpucores:0|\n")
	want := []Node{
		{Name: "n1", State: "drained*", Partitions: []string{"short"}, Has: request.Entitlement{Slices: 10, MemMiB: 1000, SMPercent: 100}},
		{Name: "n2", State: "mixed", Partitions: []string{"long", "short"}, Has: request.Entitlement{Slices: 20, MemMiB: 287542, SMPercent: 200},
			Used: request.Entitlement{Slices: 2, MemMiB: 6000, SMPercent: 60}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{"n1|p|idle|vgpu:1|\n", "n1|p|idle|vgpu:1|vgpu:0|more\n", "\n"} {
		if _, err := parseNodes(text); err == nil {
			t.Errorf("%q was understood", text)
		}
	}
}

func TestParsePending(t *testing.T) {
	got, err := parsePending("12     |long,short|gres:vgpu:1,gres:gpumem:3000|N/A|N/A|N/A|\n13|long|gres:gpu:1|N/A|N/A|N/A|\n14_[1-9]|long|N/A|N/A|N/A|gres:vgpu:1|\n15|long|N/A|N/A|N/A|N/A|\n")
	want := []Pending{{"12", []string{"long", "short"}}, {"14_[1-9]", []string{"long"}}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := parsePending("12|long|gres:vgpu:1|N/A\n"); err == nil {
		t.Error("a line that is cut was understood")
	}
}
