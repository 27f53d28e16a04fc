// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"slices"
	"strings"
)

// Bounds of a filter: as many full UUIDs as a large node has GPUs, and two filters fit in the canonical form.
const (
	maxFilterNames = 20
	maxFilterBytes = 900
	maxNameBytes   = 64
	minUUIDPrefix  = 8 // characters after "GPU-"
)

// IsZero says that nothing was asked for.
func (f Filter) IsZero() bool { return len(f.Only) == 0 && len(f.Not) == 0 }

// String is the canonical text: the names to admit, then those to exclude.
func (f Filter) String() string {
	names := append([]string(nil), f.Only...)
	for _, name := range f.Not {
		names = append(names, "!"+name)
	}
	return strings.Join(names, ",")
}

// Admits says whether a GPU of this type may be used. Upper and lower case are the same.
func (f Filter) Admits(gpuType string) bool {
	return f.admits(func(name string) bool { return strings.EqualFold(name, gpuType) })
}

// AdmitsUUID says whether this GPU may be used.
func (f Filter) AdmitsUUID(uuid string) bool {
	return f.admits(func(name string) bool { return NamesUUID(name, uuid) })
}

// NamesUUID says whether a name stands for this GPU: it is its UUID, or 8 characters of it after "GPU-" at least, which tell the GPUs of
// a node apart. Upper and lower case are the same.
func NamesUUID[T ~string](name, uuid T) bool {
	begins := len(name) <= len(uuid) && strings.EqualFold(string(name), string(uuid[:len(name)]))
	return begins && (len(name) == len(uuid) || validUUID(string(name)))
}

func (f Filter) admits(matches func(name string) bool) bool {
	if slices.ContainsFunc(f.Not, matches) {
		return false
	}
	if len(f.Only) == 0 {
		return true
	}
	return slices.ContainsFunc(f.Only, matches)
}

func parseFilter(text string, valid func(name string) bool) (Filter, bool) {
	var filter Filter
	if len(text) > maxFilterBytes {
		return Filter{}, false
	}
	names := strings.Split(text, ",")
	if len(names) > maxFilterNames {
		return Filter{}, false
	}
	for _, name := range names {
		name, not := strings.CutPrefix(name, "!")
		if len(name) > maxNameBytes || !valid(name) {
			return Filter{}, false
		}
		if not {
			filter.Not = append(filter.Not, name)
		} else {
			filter.Only = append(filter.Only, name)
		}
	}
	return filter, true
}

// validType takes what a GRES type may be made of.
func validType(name string) bool {
	return name != "" && strings.Trim(name, letters+digits+"_-.") == ""
}

// validUUID takes "GPU-" or "MIG-" and at least the first characters of the rest.
func validUUID(name string) bool {
	if len(name) < 4+minUUIDPrefix {
		return false
	}
	kind := strings.ToUpper(name[:4])
	return (kind == "GPU-" || kind == "MIG-") && strings.Trim(name[4:], hexDigits+"-") == ""
}

const (
	letters   = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits    = "0123456789"
	hexDigits = digits + "abcdefABCDEF"
)
