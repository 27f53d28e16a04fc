// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurmconf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
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
		switch words[0] { // Slurm compares so, and ignores the other lines (plugstack.c, _plugin_stack_line_type)
		case "required", "optional":
			lines = append(lines, PluginLine{Place: place, Required: words[0] == "required", Path: words[1], Args: words[2:]})
			continue
		case "include":
		default:
			continue
		}
		pattern := words[1]
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(path), pattern)
		}
		names, err := matching(pattern)
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

// matching are the files that glob(3) finds. Unlike filepath.Glob it does not take a file or a folder that cannot be looked at for one
// that is not there.
func matching(pattern string) ([]string, error) {
	const wild = "*?["
	folder, name := filepath.Split(pattern)
	looked := pattern
	if strings.ContainsAny(name, wild) {
		looked = folder
	}
	if !strings.ContainsAny(looked, wild) {
		if err := canBeLookedAt(looked, looked == folder); err != nil {
			return nil, err
		}
	}
	names, err := filepath.Glob(strings.ReplaceAll(pattern, "[!", "[^"))
	return slices.DeleteFunc(names, func(found string) bool {
		return strings.HasPrefix(filepath.Base(found), ".") && !strings.HasPrefix(name, ".")
	}), err
}

func canBeLookedAt(path string, folder bool) error {
	_, err := os.Lstat(path)
	if err == nil && folder {
		_, err = os.ReadDir(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// PluginIndex is where the first line of a plugin's file is; -1: there is none.
func PluginIndex(lines []PluginLine, name string) int {
	return slices.IndexFunc(lines, func(line PluginLine) bool { return filepath.Base(line.Path) == name })
}
