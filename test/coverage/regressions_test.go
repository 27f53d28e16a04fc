// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that these documents name must be in one of the files that its row names, and each
// of these files must have one.
func TestTestsOfRegressionsExist(t *testing.T) { testsExist(t, "../../docs/regressions.md", 4, 40) }

func TestTestsOfAttemptsExist(t *testing.T) { testsExist(t, "../../docs/attempts.md", 7, 40) }

// testsExist looks at tables of which the last two columns are tests and files.
func testsExist(t *testing.T, document string, columns, least int) {
	t.Helper()
	page, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	quoted := regexp.MustCompile("`([^`]+)`")
	rows := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != columns+2 || !strings.Contains(cells[columns], "`") {
			continue
		}
		rows++
		files := map[string]string{}
		for _, file := range quoted.FindAllStringSubmatch(cells[columns], -1) {
			text, err := os.ReadFile(filepath.Join("../..", file[1]))
			if err != nil {
				t.Error(err)
			}
			files[file[1]] = string(text)
		}
		used := map[string]bool{}
		for _, name := range quoted.FindAllStringSubmatch(cells[columns-1], -1) {
			word := regexp.MustCompile(`\b` + regexp.QuoteMeta(name[1]) + `\b`)
			found := false
			for file, text := range files {
				if word.MatchString(text) {
					found, used[file] = true, true
				}
			}
			if !found {
				t.Errorf("%q: no test %s in%s", strings.TrimSpace(cells[1]), name[1], cells[columns])
			}
		}
		if len(used) != len(files) {
			t.Errorf("%q: a file of%s has none of its tests", strings.TrimSpace(cells[1]), cells[columns])
		}
	}
	if rows < least {
		t.Errorf("only %d rows were understood", rows)
	}
}
