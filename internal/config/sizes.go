// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"maps"
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// Size is a slice that has a name here: vgpu:half:1 is a slice of size half.
type Size struct {
	Name            string
	request.Request // its memory, its part of the time, or both
}

// maxSizes keeps the list of their names in one message.
const maxSizes = 32

// sizeName is a name that Slurm and Lua read as a name: no number, no unit, nothing that parts GRES.
var sizeName = pattern.Late(`^[a-z][a-z0-9-]{0,31}$`)

// NamedSizes are the slices that have names, by these.
func (c Config) NamedSizes() (all []Size) {
	for _, name := range slices.Sorted(maps.Keys(c.Sizes)) {
		size, _ := readSize(name, c.Sizes[name])
		all = append(all, size)
	}
	return all
}

// readSize reads values as those of --vgpu-mem and --vgpu-cores.
func readSize(name string, values map[string]any) (Size, bool) {
	size := Size{Name: name}
	for key, value := range values {
		if !oneOf(key, "mem", "cores") || request.ParseOption("vgpu-"+key, fmt.Sprint(value), &size.Request) != nil {
			return size, false
		}
	}
	return size, len(values) > 0 && sizeName().MatchString(name)
}

func areSizes(sizes map[string]map[string]any) bool {
	for name, values := range sizes {
		if _, ok := readSize(name, values); !ok {
			return false
		}
	}
	return len(sizes) <= maxSizes
}
