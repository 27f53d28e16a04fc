// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package discover

import (
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
)

// Words of a product name that do not tell one model from another.
var brands = map[string]bool{"nvidia": true, "tesla": true, "quadro": true, "geforce": true, "graphics": true, "device": true}

var (
	notInType  = pattern.Late(`[^a-z0-9]+`)
	memorySize = pattern.Late(`^[0-9]+(gb|mb|gib)$`)
	digit      = pattern.Late(`[0-9]`)
	onlyDigits = pattern.Late(`^[0-9]+$`)
)

// TypeOf makes the GRES type of NVML's product name: the model in lower case, without brand, form
// factor and memory size.
//
//	NVIDIA H200                    h200
//	NVIDIA A100-SXM4-80GB          a100
//	NVIDIA H100 80GB HBM3          h100
//	NVIDIA RTX A6000               a6000
//	NVIDIA GeForce RTX 4090        rtx4090
//	NVIDIA RTX 6000 Ada Generation rtx6000
//	NVIDIA TITAN V                 titan_v
//
// A name that is empty but for its brand is "gpu". The result holds only a–z, 0–9 and "_", which
// Slurm accepts in a GRES type.
func TypeOf(name string) string {
	var model []string // the words that are left
	for word := range strings.FieldsSeq(strings.ToLower(name)) {
		// "A100-SXM4-80GB" is a model and what it is built as.
		word, _, _ = strings.Cut(word, "-")
		word = notInType().ReplaceAllString(word, "")
		if word == "" || brands[word] || memorySize().MatchString(word) {
			continue
		}
		if digit().MatchString(word) {
			if onlyDigits().MatchString(word) && len(model) > 0 {
				return model[len(model)-1] + word // 6000 alone names a Quadro as well as an RTX
			}
			return word
		}
		model = append(model, word)
	}
	if len(model) == 0 {
		return "gpu"
	}
	return strings.Join(model, "_")
}
