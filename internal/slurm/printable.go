// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"strings"
	"unicode"
)

// Printable is a text fit for a terminal, with ? for what is no letter, sign or blank. Texts of Slurm, and of who submits jobs,
// go through it before anybody is shown them: an escape sequence in one would be carried out by root's terminal.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// PrintableLines is Printable for a text of several lines.
func PrintableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Printable(line)
	}
	return strings.Join(lines, "\n")
}
