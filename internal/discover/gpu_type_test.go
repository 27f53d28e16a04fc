// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"regexp"
	"testing"

	"pgregory.net/rapid"
)

func TestTypeOf(t *testing.T) {
	for name, want := range map[string]string{
		"NVIDIA H200":                    "h200",
		"NVIDIA H200 141GB HBM3e":        "h200",
		"NVIDIA H200 NVL":                "h200",
		"NVIDIA A100-SXM4-80GB":          "a100",
		"NVIDIA A100 80GB PCIe":          "a100",
		"NVIDIA H100 80GB HBM3":          "h100",
		"NVIDIA GH200 480GB":             "gh200",
		"NVIDIA L40S":                    "l40s",
		"Tesla V100-SXM2-16GB":           "v100",
		"Tesla T4":                       "t4",
		"NVIDIA RTX A6000":               "a6000",
		"NVIDIA RTX 6000 Ada Generation": "rtx6000",
		"Quadro RTX 8000":                "rtx8000",
		"NVIDIA GeForce RTX 4090":        "rtx4090",
		"NVIDIA GeForce GTX 1080 Ti":     "gtx1080",
		"NVIDIA TITAN V":                 "titan_v",
		"NVIDIA Graphics Device":         "gpu",
		"NVIDIA B200":                    "b200",
		"":                               "gpu",
		"  ":                             "gpu",
		"GPU with \"quotes\", and:colon": "gpu_with_quotes_andcolon",
	} {
		if got := TypeOf(name); got != want {
			t.Errorf("TypeOf(%q) = %q, want %q", name, got, want)
		}
	}
}

// Whatever a driver calls its GPU, gres.conf can be written with the type.
func TestTypeIsAlwaysUsable(t *testing.T) {
	usable := regexp.MustCompile(`^[a-z0-9_]+$`)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		if got := TypeOf(name); !usable.MatchString(got) {
			t.Fatalf("TypeOf(%q) = %q", name, got)
		}
	})
}
