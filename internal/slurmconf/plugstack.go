// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurmconf

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// PluginName is the file of our plugin, as Slurm loads it.
const PluginName = "spank_vgpu.so"

// PluginLine is the line of a plugin in plugstack.conf.
type PluginLine struct {
	Place    string // "file:line"
	Required bool
	Path     string // of the plugin, as it stands there
	Args     []string
}

// Plugstack reads the lines of plugstack.conf and of what it includes, in order; Slurm allows patterns there.
func Plugstack(path string) ([]PluginLine, error) { return plugstack(path, 0) }

func plugstack(path string, depth int) (lines []PluginLine, err error) {
	if depth > maxIncludeDepth {
		return nil, fmt.Errorf("%s: %w: included %d files deep", path, ErrLimits, depth)
	}
	data, err := readBounded(path)
	if err != nil {
		return nil, err
	}
	for i, text := range strings.Split(string(data), "\n") {
		text, _, _ = strings.Cut(text, "#")
		words := strings.Fields(text)
		if len(words) < 2 {
			continue
		}
		place := fmt.Sprintf("%s:%d", path, i+1)
		if !strings.EqualFold(words[0], "include") {
			lines = append(lines, PluginLine{Place: place, Required: strings.EqualFold(words[0], "required"), Path: words[1], Args: words[2:]})
			continue
		}
		pattern := words[1]
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(path), pattern)
		}
		names, err := filepath.Glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("%s: include %s: %w", place, pattern, err)
		}
		for _, name := range names {
			included, err := plugstack(name, depth+1)
			if err != nil {
				return nil, err
			}
			lines = append(lines, included...)
		}
	}
	return lines, nil
}

// PluginIndex is where the first line of a plugin's file is; -1: there is none.
func PluginIndex(lines []PluginLine, name string) int {
	return slices.IndexFunc(lines, func(line PluginLine) bool { return filepath.Base(line.Path) == name })
}
