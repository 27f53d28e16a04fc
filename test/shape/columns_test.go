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

// wider are the files that still have longer lines. No file comes to this list.
var wider = map[string]bool{
	"internal/slurmdb/admincomment.c": true,
	"internal/slurmdb/admincomment.h": true,
	"interposer/account/reserve.h":    true,
	"interposer/cuda/array.h":         true,
	"interposer/cuda/memory.h":        true,
	"interposer/cuda/vmm.h":           true,
	"interposer/memory/array.c":       true,
	"interposer/memory/array.h":       true,
	"interposer/memory/blocks.c":      true,
	"interposer/memory/blocks.h":      true,
	"interposer/memory/charge.c":      true,
	"interposer/memory/descriptors.c": true,
	"interposer/memory/descriptors.h": true,
	"interposer/memory/granules.c":    true,
	"interposer/memory/granules.h":    true,
	"interposer/memory/holders.c":     true,
	"interposer/memory/holders.h":     true,
	"interposer/memory/vmm.c":         true,
	"interposer/memory/vmm.h":         true,
	"interposer/pools/graphs.c":       true,
	"interposer/pools/pools.h":        true,
	"interposer/pools/table.c":        true,
	"test/coverage/testdata/layout.c": true,
	"test/interposer/pools/pools.c":   true,
}

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
		found := tooWide(name, string(text))
		if wider[name] && len(found) == 0 {
			t.Errorf("%s has no long lines any more: take it off the list", name)
		}
		for _, line := range found {
			if !wider[name] {
				t.Error(line)
			}
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
