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

// hard are the patterns that readers with school English find hard, and what to write instead.
var hard = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?:^|[.:;!] |\| |\* |\*\*)(?:Who|Whoever|What)\b`), "name the noun in place of a clause with who or what"},
	{regexp.MustCompile(`(?i)\b(?:nobody|somebody|told|believe[sd]?)\b`), "say what a program reads, writes, ignores, or which user is meant"},
	{regexp.MustCompile(`(?i)\b(?:knows|(?:is|are|was|were|be) asked)\b`), "a program reads, queries or compares"},
	{regexp.MustCompile(`(?i)(?:^|[,;.] )(?:by what|of what|to what|for whom|by whom|of whom) `), "use a verb, or the noun"},
}

// allowed are phrases in which such a word is plain: a user asks for something, a question, the name of an alert.
var allowed = regexp.MustCompile("`[^`]*`|\\basked (?:for|in)\\b|(?:Who|What)\\b[^.|]*\\?|\\bWhat is (?:new|left)\\b|\\]\\([^)]*\\)")

// isRecord says whether a document is what a run gave, or is generated: its words stay.
func isRecord(document string) bool {
	return strings.HasPrefix(document, filepath.Join("docs", "verified")) || document == "docs/cuda-coverage.md"
}

// mostPronouns is how many words that stand for another one a sentence may have.
const mostPronouns = 5

var (
	pronoun  = regexp.MustCompile(`(?i)\b(?:it|one|that|those|what|which|whose)\b`)
	sentence = regexp.MustCompile(`[.;:|] `)
)

// chain is the first sentence of a line that is a chain of it, one and that.
func chain(line string) string {
	for _, part := range sentence.Split(line, -1) {
		if len(pronoun.FindAllString(part, -1)) > mostPronouns {
			return part
		}
	}
	return ""
}

func hardLines(text string) (lines []string) {
	for _, line := range prose(text) {
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "<!--") {
			continue
		}
		rest := allowed.ReplaceAllString(line, "")
		if found := chain(rest); found != "" {
			lines = append(lines, found+": repeat the noun in place of it, one and that")
			continue
		}
		for _, h := range hard {
			if found := h.pattern.FindString(rest); found != "" {
				lines = append(lines, strings.TrimSpace(found)+": "+h.instead+": "+line)
				break
			}
		}
	}
	return lines
}

func TestDocumentsArePlain(t *testing.T) {
	all := hardManual(t)
	for document, text := range documents(t) {
		if isRecord(document) {
			continue
		}
		for _, line := range hardLines(text) {
			all = append(all, document+": "+line)
		}
	}
	if len(all) > 0 {
		t.Errorf("%d lines are hard to read:\n%s", len(all), strings.Join(all, "\n"))
	}
}

// hardManual are the hard lines of manual pages, but for those of requests, which begin with a dot.
func hardManual(t *testing.T) (all []string) {
	pages, err := filepath.Glob(filepath.Join(top, "docs/man/*"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no manual pages: %v", err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if found := hardLines(line); !strings.HasPrefix(line, ".") && len(found) > 0 {
				all = append(all, filepath.Base(page)+": "+found[0])
			}
		}
	}
	return all
}

func TestHardLinesAreFound(t *testing.T) {
	for line, found := range map[string]bool{
		"Who finds no room waits.":                              true,
		"| a step | What is kept is written down |":             true,
		"The prolog is told of the job.":                        true,
		"A page that nobody reads goes.":                        true,
		"The kernel knows the file.":                            true,
		"The prolog writes the state, by what it has read.":     true,
		"It is that one that it had when one of those left it.": true,
		"A user asks for 30 %. What does it cost?":              false,
		"The prolog reads the state, and compares the times.":   false,
		"`vgpu: nobody` is a message.":                          false,
		"    Who is in a block of code":                         false,
	} {
		if got := len(hardLines(line)) > 0; got != found {
			t.Errorf("%q: found %v, want %v", line, got, found)
		}
	}
}
