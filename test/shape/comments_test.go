// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package shape

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	comment   = regexp.MustCompile(`^\s*(?://|/\*|--)`)
	beginsWho = regexp.MustCompile(`^\s*(?://|/\*|--)\s*(?:Who|Whoever|What)\b`)
)

// whoComments names the comments that begin with a clause in place of a noun.
func whoComments(name, text string) (found []string) {
	before := ""
	for i, line := range strings.Split(text, "\n") {
		goesOn := comment.MatchString(before) && !strings.Contains(before, "*/")
		if beginsWho.MatchString(line) && !goesOn {
			found = append(found, fmt.Sprintf("%s:%d: name the noun in place of a clause with who or what: %s", name, i+1, strings.TrimSpace(line)))
		}
		before = line
	}
	return found
}

func TestCommentsBeginWithNouns(t *testing.T) {
	for _, name := range sources(t, ".go", ".c", ".h", ".lua") {
		if strings.HasPrefix(name, "test/") || strings.HasPrefix(name, "tools/") || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_test.lua") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if os.IsNotExist(err) {
			continue // removed, and not yet from git's index
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range whoComments(name, string(text)) {
			t.Error(found)
		}
	}
}

func TestCommentsWithWhoAreFound(t *testing.T) {
	for text, want := range map[string]int{
		"// Who reads the page waits.\nfunc f()":           1,
		"\t/* What the step used. */":                      1,
		"-- Whoever asks.":                                 1,
		"// The program reads.\n// What follows is a text": 0,
		"/* The page. */\n/* What it has. */":              1,
		"x := 1 // What it was":                            0,
		"// Whole GPUs are none.":                          0,
		"// The user of the slice.":                        0,
	} {
		if found := whoComments("a.go", text); len(found) != want {
			t.Errorf("%q: %v, want %d", text, found, want)
		}
	}
}
