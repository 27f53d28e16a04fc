// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseGPUs(t *testing.T) {
	for text, want := range map[string]GPUs{
		"":                                    {},
		"(null)":                              {},
		"vgpu:1(CNT:1),gpumem:3000":           {},
		"gpu:h200:2(IDX:0-1),vgpu(CNT:1)":     {Count: 2, Types: []string{"h200"}, Numbers: []int{0, 1}},
		"gpu:1(IDX:3)":                        {Count: 1, Numbers: []int{3}},
		"gpu(IDX:3)":                          {Count: 1, Numbers: []int{3}},
		"gpu:h200:2(IDX:4,6),gpumem(CNT:1)":   {Count: 2, Types: []string{"h200"}, Numbers: []int{4, 6}},
		"gpu:h200:1(IDX:0),gpu:a100:1(IDX:2)": {Count: 2, Types: []string{"h200", "a100"}, Numbers: []int{0, 2}},
		"gpu:h200:0(IDX:)":                    {},
		"gres:gpu:2":                          {Count: 2},
		"gres/gpu:h200=1":                     {Count: 1, Types: []string{"h200"}},
		"gpu:2(IDX:5)":                        {Count: 2},
	} {
		got, err := ParseGPUs(text)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v, %s", text, err, diff)
		}
	}
	for _, text := range []string{"gpu:1(IDX:x)", "gpu:2(IDX:3-1)", "gpu:2(IDX:-1)", "gpu:9999(IDX:0-9998)", "gpu:99T", "gpu:1(IDX:0-99999999)"} {
		if got, err := ParseGPUs(text); err == nil {
			t.Errorf("%s is read as %+v", text, got)
		}
	}
}
