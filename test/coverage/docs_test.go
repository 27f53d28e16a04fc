// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

const top = "../.."

// Longer ones are hard to read.
const (
	mostWordsOfAParagraph    = 120
	mostWordsBetweenHeadings = 430
)

// documents are the Markdown files of the project, by their path in it.
func documents(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "build" || entry.Name() == "shared") {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(top, path)
		found[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 20 {
		t.Fatalf("only %d documents were found", len(found))
	}
	return found
}

var (
	quoted    = regexp.MustCompile("`([^`\n]+)`")
	ofProject = regexp.MustCompile(`^(interposer|internal|test|docs|spank|gres|ctl|draw|prolog|epilog|packaging|examples|tools)/`)
	// As in test/interposer/ROOM/NAME.c; and gres/gpu is Slurm's.
	standsFor = regexp.MustCompile(`…|\b[A-Z]{2,}\b|^gres/[a-z]+$`)
	anchor    = regexp.MustCompile(`<a id="([^"]+)"></a>`)
	link      = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)
	item      = regexp.MustCompile(`^\s*([*-]|\d+\.)\s`)
)

// prose is a document's lines with those of code blocks empty.
func prose(text string) []string {
	lines, inside, indented, blank := strings.Split(text, "\n"), false, false, true
	for i, line := range lines {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		if strings.TrimSpace(line) != "" {
			indented = strings.HasPrefix(line, "    ") && (indented || blank)
		}
		blank = strings.TrimSpace(line) == ""
		if fence || inside || indented {
			lines[i] = ""
		}
		inside = inside != fence
	}
	return lines
}

func TestDocumentsNameFilesThatExist(t *testing.T) {
	paths := 0
	for document, text := range documents(t) {
		for _, span := range quoted.FindAllStringSubmatch(strings.Join(prose(text), "\n"), -1) {
			for word := range strings.FieldsSeq(span[1]) {
				path := strings.TrimRight(word, ".,:;")
				if !ofProject.MatchString(path) || standsFor.MatchString(path) {
					continue
				}
				paths++
				if there, err := filepath.Glob(filepath.Join(top, path)); err != nil || len(there) == 0 {
					t.Errorf("%s: there is no %s", document, path)
				}
			}
		}
	}
	if paths < 100 {
		t.Errorf("only %d paths were understood", paths)
	}
}

// A document that names a test says that something was tried.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	there := map[string]bool{}
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(string(text), -1) {
			there[found[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for document, text := range documents(t) {
		for _, found := range regexp.MustCompile("`(Test[A-Z]\\w+)").FindAllStringSubmatch(text, -1) {
			named++
			if !there[found[1]] {
				t.Errorf("%s: there is no %s", document, found[1])
			}
		}
	}
	if named < 50 {
		t.Errorf("only %d names of tests were understood", named)
	}
}

// slug is what a browser of the repository makes of a heading for links to it.
func slug(heading string) string {
	var made strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(strings.TrimLeft(heading, "#"))) {
		switch {
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '-' || r == '_':
			made.WriteRune(r)
		case r == ' ':
			made.WriteByte('-')
		}
	}
	return made.String()
}

func TestLinksOfDocumentsLead(t *testing.T) {
	all := documents(t)
	headings := map[string]map[string]bool{}
	for document, text := range all {
		headings[document] = map[string]bool{}
		for _, line := range prose(text) {
			if strings.HasPrefix(line, "#") {
				headings[document]["#"+slug(line)] = true
			}
			if named := anchor.FindStringSubmatch(line); named != nil {
				headings[document]["#"+named[1]] = true
			}
		}
	}
	for document, text := range all {
		for _, found := range link.FindAllStringSubmatch(strings.Join(prose(text), "\n"), -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			target := document
			if found[1] != "" {
				target = filepath.Join(filepath.Dir(document), found[1])
			}
			if _, err := os.Stat(filepath.Join(top, target)); err != nil {
				t.Errorf("%s: there is no %s", document, target)
			} else if found[2] != "" && !headings[target][found[2]] {
				t.Errorf("%s: %s has no heading %s", document, target, found[2])
			}
		}
	}
}

func TestParagraphsAreShort(t *testing.T) {
	for document, text := range documents(t) {
		words, since, heading := 0, 0, "its beginning"
		end := func() {
			if words > mostWordsOfAParagraph {
				t.Errorf("%s: a paragraph under %q has %d words", document, heading, words)
			}
			words = 0
		}
		section := func() {
			// The headings of the changelog are releases.
			if since > mostWordsBetweenHeadings && document != "CHANGELOG.md" {
				t.Errorf("%s: %d words under %q", document, since, heading)
			}
			since = 0
		}
		for _, line := range prose(text) {
			switch {
			case strings.HasPrefix(line, "#"):
				end()
				section()
				heading = strings.TrimLeft(line, "# ")
			case strings.TrimSpace(line) == "", strings.HasPrefix(line, "|"), strings.HasPrefix(line, "<!--"):
				end()
			default:
				if item.MatchString(line) {
					end()
				}
				words += len(strings.Fields(line))
				since += len(strings.Fields(line))
			}
		}
		end()
		section()
	}
}
