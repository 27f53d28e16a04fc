// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// leastWordsOfAMessage is how many words a string has that people read: shorter ones are names, keys and formats.
const leastWordsOfAMessage = 3

// hardInMessages are the patterns of documents; and messages begin with a lower-case letter.
var hardInMessages = regexp.MustCompile(`(?:^|[.:;!] )(?:who|whoever|what)\b`)

// stringOfC is a string of C or Lua, or a comment of either, which may hold quotes.
var stringOfC = map[string]*regexp.Regexp{
	".c":    regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|'(?:[^'\\\n]|\\.)+'|"((?:[^"\\\n]|\\.)*)"`),
	".h":    regexp.MustCompile(`(?s)/\*.*?\*/|//[^\n]*|'(?:[^'\\\n]|\\.)+'|"((?:[^"\\\n]|\\.)*)"`),
	".lua":  regexp.MustCompile(`--[^\n]*|'((?:[^'\\\n]|\\.)*)'|"((?:[^"\\\n]|\\.)*)"`),
	".yml":  regexp.MustCompile(`(?m)^\s*#.*$|^([^#\n]+)$`),
	".json": regexp.MustCompile(`"(?:title|description)": "((?:[^"\\\n]|\\.)*)"`), // of a dashboard
}

// message is a string that people may read, and its line.
type message struct {
	line int
	text string
}

// messages are the strings of a source that have enough words.
func messages(name, text string) (found []message) {
	add := func(line int, text string) {
		if text = strings.TrimSpace(text); len(strings.Fields(text)) >= leastWordsOfAMessage {
			found = append(found, message{line, text})
		}
	}
	if strings.HasSuffix(name, ".go") {
		set := token.NewFileSet()
		file := set.AddFile(name, -1, len(text))
		var s scanner.Scanner
		for s.Init(file, []byte(text), nil, 0); ; {
			at, kind, literal := s.Scan()
			if kind == token.EOF {
				return found
			}
			if value, err := strconv.Unquote(literal); kind == token.STRING && err == nil {
				add(file.Line(at), value)
			}
		}
	}
	for _, at := range stringOfC[filepath.Ext(name)].FindAllStringSubmatchIndex(text, -1) {
		for group := 2; group < len(at); group += 2 {
			if at[group] >= 0 {
				add(1+strings.Count(text[:at[group]], "\n"), text[at[group]:at[group+1]])
			}
		}
	}
	return found
}

// hardMessages are the strings of a source that are hard to read.
func hardMessages(name, text string) (found []string) {
	for _, m := range messages(name, text) {
		rest := allowed.ReplaceAllString(m.text, "")
		lines := hardLines(rest)
		if at := hardInMessages.FindStringIndex(rest); at != nil {
			lines = append(lines, "name the noun in place of a clause with who or what: "+rest[at[0]:min(at[0]+80, len(rest))])
		}
		for _, line := range lines {
			found = append(found, fmt.Sprintf("%s:%d: %s", name, m.line, line))
		}
	}
	return found
}

// isProduct says whether people read strings of this file on a screen: no test, and no tool of developers.
func isProduct(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	return !strings.HasSuffix(name, "_test.go") && !strings.HasSuffix(name, "_test.lua") && !strings.HasSuffix(name, "_fuzz.lua") &&
		!strings.Contains(name, "testdata") && !strings.HasPrefix(name, ".") && top != "test" && top != "tools" && top != "build" && top != "shared"
}

func TestMessagesArePlain(t *testing.T) {
	count := 0
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(top, path)
		if err != nil || entry.IsDir() || !isProduct(name) || filepath.Ext(name) != ".go" && stringOfC[filepath.Ext(name)] == nil {
			return err
		}
		text, err := os.ReadFile(path)
		count += len(messages(name, string(text)))
		for _, line := range hardMessages(name, string(text)) {
			t.Error(line)
		}
		return err
	})
	if err != nil || count < 1000 {
		t.Errorf("only %d messages were found: %v", count, err)
	}
}

func TestHardMessagesAreFound(t *testing.T) {
	for text, found := range map[string]int{
		"a.go " + `var a = "nobody keeps the caps"`:                       1,
		"a.go " + `var a = fmt.Errorf("read it: what %s says: %w", a, b)`: 1,
		"a.go " + "var a = `What the job\nhas used.`":                     1,
		"a.go " + `// nobody keeps "the caps"`:                            0,
		"a.go " + `var a = "nobody here"`:                                 0,
		"a.go " + `var a = "the caps are not kept"`:                       0,
		"a.c " + `log(1, "the page is not believed");`:                    1,
		"a.c " + `/* it's not for "nobody at all" */ char a = '"';`:       0,
		"a.lua " + `return nil, 'who asks for too much'`:                  1,
		"a.yml " + "  # nobody reads this\n  summary: nobody reads it":    1,
		"a.json " + `"description": "Time that nobody counted"`:           1,
		"a.json " + `"expr": "time that nobody counted"`:                  0,
	} {
		name, source, _ := strings.Cut(text, " ")
		if got := hardMessages(name, source); len(got) != found {
			t.Errorf("%s: %q, want %d", text, got, found)
		}
	}
}
