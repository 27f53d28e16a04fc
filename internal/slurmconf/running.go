// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurmconf

import "strings"

// RunningPath is what a setting's place names where slurmctld said it.
const RunningPath = "scontrol show config"

// Running reads what `scontrol show config` prints: the settings with which slurmctld runs.
func Running(text string) File {
	file := File{Path: RunningPath}
	for i, line := range strings.Split(text, "\n") {
		if strings.HasSuffix(strings.TrimSpace(line), "Configuration:") { // cgroup.conf of the controller, and others
			break
		}
		key, value, is := strings.Cut(line, "=")
		key, _, _ = strings.Cut(strings.TrimSpace(key), "[") // Prolog[0]
		value = strings.TrimSpace(value)
		if !is || key == "" || value == "(null)" || value == "" {
			continue
		}
		file.Lines = append(file.Lines, Line{File: RunningPath, Number: i + 1, Pairs: []Pair{{Key: strings.ToLower(key), Value: value}}})
	}
	return file
}
