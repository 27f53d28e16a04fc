// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"strings"
)

// keys is every key, in the order in which they are shown. A key is its row in one of the three tables and its field in Config;
// config.yaml.example and slurm-vgpu-config.yaml(5) are made of the rows, by `make generate` (package schema).
var keys = slices.Concat(nodeKeys, placeKeys, watchKeys)

// Keys is every key of config.yaml.
func Keys() []Key { return slices.Clone(keys) }

// Excludes are the keys that must have their defaults where this one has not.
func (k Key) Excludes() []string {
	all := slices.Clone(k.NotBeside)
	for _, other := range keys {
		if slices.Contains(other.NotBeside, k.Name) {
			all = append(all, other.Name)
		}
	}
	return all
}

// accepted is what the key takes, in words.
func (k Key) accepted() string {
	if others := k.Excludes(); others != nil {
		return k.wants + "; not beside " + strings.Join(others, " or ")
	}
	return k.wants
}

// right says whether a configuration may have the value that it has of a key.
func (k Key) right(c *Config) bool {
	return k.valid(c) && (k.isUsual(c) || !slices.ContainsFunc(k.Excludes(), func(name string) bool {
		other, known := keyByName(name)
		return known && !other.isUsual(c)
	}))
}

func keyByName(name string) (Key, bool) {
	i := slices.IndexFunc(keys, func(k Key) bool { return k.Name == name })
	if i < 0 {
		return Key{}, false
	}
	return keys[i], true
}

// gone are keys that an earlier build had, and why they are not there.
var gone = map[string]string{"shares_by": "as vgpud keeps all shares of GPU time"}

func isSection(name string) bool {
	return slices.ContainsFunc(keys, func(k Key) bool { return strings.HasPrefix(k.Name, name+".") })
}

// accepts lists the keys that could have been meant: those of the same section.
func accepts(name string) string {
	section, _, nested := strings.Cut(name, ".")
	var names []string
	for _, k := range keys {
		if s, _, n := strings.Cut(k.Name, "."); n && s == section {
			names = append(names, k.Name)
		}
	}
	if !nested && len(names) > 0 { // a section was given a plain value
		return section + " is a section: " + strings.Join(names, ", ")
	}
	if len(names) == 0 && suggestion(name) == "" { // who is near a key needs no list of all
		for _, k := range keys {
			names = append(names, k.Name)
		}
	}
	return strings.Join(names, ", ")
}

// suggestion names the key that a typo most likely meant, or one that begins with what was written.
func suggestion(name string) string {
	begins := func(k Key) bool { return name != "" && strings.HasPrefix(k.Name, name+"_") }
	if i := slices.IndexFunc(keys, begins); i >= 0 {
		return " (did you mean " + keys[i].Name + "?)"
	}
	best, bestDistance := "", 4
	for _, k := range keys {
		if d := distance(name, k.Name); d < bestDistance {
			best, bestDistance = k.Name, d
		}
	}
	if best == "" {
		return ""
	}
	return " (did you mean " + best + "?)"
}

// distance counts the letters to insert, delete or replace.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal, row[j] = row[j], min(row[j]+1, row[j-1]+1, cost)
		}
	}
	return row[len(b)]
}
