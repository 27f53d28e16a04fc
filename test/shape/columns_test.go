// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package shape

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	mostColumns = 110 // of a line of C, as .clang-format has it
	tabStop     = 8
)

// columns is how wide a line is on a screen.
func columns(line string) (width int) {
	for _, r := range line {
		width++
		if r == '\t' {
			width = (width + tabStop - 1) / tabStop * tabStop
		}
	}
	return width
}

// tooWide names the lines that are wider than they may be. Tables and macros are kept by hand.
func tooWide(name, text string) (found []string) {
	macro := false
	for i, line := range strings.Split(text, "\n") {
		continued := macro
		macro = strings.HasSuffix(line, "\\")
		start := strings.TrimLeft(line, " \t")
		if macro || continued || start == "" || strings.ContainsRune("#{\"", rune(start[0])) {
			continue
		}
		if width := columns(line); width > mostColumns {
			found = append(found, fmt.Sprintf("%s:%d: %d columns, at most %d", name, i+1, width, mostColumns))
		}
	}
	return found
}

func TestLinesOfCAreShort(t *testing.T) {
	for _, name := range sources(t, ".c", ".h") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // removed, and git was not told yet
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range tooWide(name, string(text)) {
			t.Error(line)
		}
	}
}

func TestWideLinesAreFound(t *testing.T) {
	long := strings.Repeat("x", mostColumns-tabStop)
	for text, want := range map[string]int{
		"\t" + long + "\n":                      0,
		"\t" + long + ";\n":                     1,
		"  \t" + long + ";\n":                   1,
		"\t{" + long + "},\n":                   0,
		"#define X " + long + "12345\n":         0,
		"\t" + long + "; \\\n\t" + long + ";\n": 0,
	} {
		if found := tooWide("a.c", text); len(found) != want {
			t.Errorf("%q: %v, want %d", text, found, want)
		}
	}
}
