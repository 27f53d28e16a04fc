// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"regexp"
	"strings"
)

var (
	linked   = regexp.MustCompile(`\[([^\]]+)\]\([^)]+\)`)
	code     = regexp.MustCompile("`([^`]+)`")
	strong   = regexp.MustCompile(`\*\*([^*]+)\*\*`)
	slanted  = regexp.MustCompile(`\*([^*]+)\*`)
	page     = regexp.MustCompile(`\b([\w.-]+)\((\d)\)`)
	sentence = regexp.MustCompile(`([.?]) +([A-Z\x60(*])`)
)

// dashes are such as can be copied from a manual page.
func dashes(text string) string { return strings.ReplaceAll(text, "-", `\-`) }

// plain is the same Markdown without its signs.
func plain(markdown string) string {
	text := linked.ReplaceAllString(markdown, "$1")
	text = strong.ReplaceAllString(text, "$1")
	return strings.ReplaceAll(text, "`", "")
}

// troff is Markdown as the tables have it (paragraphs, `code`, *slanted*, **strong**, links) in the language of manual pages: a line for
// each sentence. Paragraphs run on, as entries of a list of options are short.
func troff(markdown string) string {
	text := strings.ReplaceAll(strings.Join(strings.Fields(markdown), " "), `\`, `\e`)
	text = sentence.ReplaceAllString(text, "$1\n$2")
	text = linked.ReplaceAllString(text, "$1")
	text = page.ReplaceAllString(text, "`$1`($2)")
	text = code.ReplaceAllStringFunc(text, func(quoted string) string {
		return `\fB` + strings.ReplaceAll(dashes(strings.Trim(quoted, "`")), "*", `\(**`) + `\fP`
	})
	text = strong.ReplaceAllString(text, `\fB$1\fP`)
	text = slanted.ReplaceAllString(text, `\fI$1\fP`)
	text = strings.ReplaceAll(text, `\(**`, "*")
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n") + "\n"
}
