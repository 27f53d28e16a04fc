// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
)

// Bounds of what is read of a site's scripts: how much of one, how many, and how deep one calls another.
const (
	maxScript      = 64 << 10
	maxScripts     = 256
	maxScriptDepth = 3
)

// runs says whether a program is ours, a link to it, or a script that starts it: by its name, or as one of the parts of a folder.
func runs(path, ours string) bool {
	s := scripts{ours: ours, left: maxScripts}
	return s.runs(path, nil, 0)
}

type scripts struct {
	ours string
	left int // how many may still be read
}

func (s *scripts) runs(path string, args []string, depth int) bool {
	if target, err := filepath.EvalSymlinks(path); err == nil && filepath.Base(target) == s.ours {
		return true
	}
	if s.left--; s.left < 0 || depth > maxScriptDepth {
		return false
	}
	lines := readScript(path, args)
	for _, line := range lines {
		if strings.Contains(line.text, s.ours) {
			return true
		}
	}
	for _, line := range lines {
		for i, word := range line.words {
			if word != path && s.starts(line, word, line.words[i+1:], depth) {
				return true
			}
		}
	}
	return false
}

// starts says whether a word of a line brings a program of ours along.
func (s *scripts) starts(line scriptLine, word string, args []string, depth int) bool {
	if !filepath.IsAbs(word) {
		return false
	}
	pattern := strings.ContainsAny(word, "*?[")
	if info, err := os.Stat(word); err == nil && info.IsDir() && line.ofParts {
		word, pattern = filepath.Join(word, "*"), true
	} else if err == nil && info.Mode().IsRegular() {
		return s.runs(word, args, depth+1)
	}
	if !pattern {
		return false
	}
	parts, err := filepath.Glob(word)
	if err != nil || len(parts) > maxScripts {
		return false
	}
	for _, part := range parts {
		info, err := os.Stat(part)
		if err == nil && info.Mode().IsRegular() && (info.Mode()&0o111 != 0 || line.reads) && s.runs(part, nil, depth+1) {
			return true
		}
	}
	return false
}

// scriptLine is a line of a script with what is known of its variables in place.
type scriptLine struct {
	text    string
	words   []string
	ofParts bool // it goes through a folder
	reads   bool // the script gives parts to a shell, so that they need not be executable
}

var (
	assignment   = pattern.Late(`^\s*(?:(?:export|readonly|local|declare(?:\s+-\w+)?)\s+)?([A-Za-z_]\w*)=("[^"]*"|'[^']*'|[^\s;]*)`)
	variable     = pattern.Late(`\$(?:\{([A-Za-z_]\w*|[0-9@*])(?::?[-=]([^}]*))?\}|([A-Za-z_]\w*|[0-9@*]))`)
	ownFile      = pattern.Late(`\$\(\s*(?:readlink\s+-\w+|realpath)\s+(?:--\s+)?"?(?:\$0|\$\{0\}|\$\{?BASH_SOURCE(?:\[0\])?\}?)"?\s*\)|\$\{BASH_SOURCE\[0\]\}|\$\{?BASH_SOURCE\}?|\$0|\$\{0\}`)
	ownFolder    = pattern.Late(`\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}`)
	ownStem      = pattern.Late(`\$\{(?:0|BASH_SOURCE(?:\[0\])?)%\.[^}]*\}`)
	folderOf     = pattern.Late(`\$\(\s*dirname\s+(?:--\s+)?"?([^")]*)"?\s*\)`)
	enterAndPwd  = pattern.Late(`\$\(\s*cd\s+(?:-\w\s+)?(?:--\s+)?"?([^")]*)"?\s*(?:>\s*/dev/null(?:\s+2>&1)?\s*)?(?:&&|;)\s*pwd(?:\s+-\w)?\s*\)`)
	nameOf       = pattern.Late(`\$\(\s*basename\s+(?:--\s+)?"?([^")\s]*)"?(?:\s+"?([^")\s]*)"?)?\s*\)`)
	goesThrough  = pattern.Late(`\b(?:for|find|ls|cd|while|run_?-?\w*parts?(?:\.sh)?|listdir|iterdir|scandir|glob)\b`)
	givesToShell = pattern.Late(`(?m)(?:^|[\s;&|])(?:\.|source|bash|sh)\s+"?\$`)
)

// readScript reads a script as far as that goes without running it: comments are taken out and variables with one value put in. A word
// that is not known says nothing.
func readScript(path string, args []string) (lines []scriptLine) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // which has become a pipe, perhaps
	if err != nil {
		return nil
	}
	defer file.Close()
	head, err := io.ReadAll(io.LimitReader(file, maxScript))
	if text := string(head); err != nil || !strings.HasPrefix(text, "#!") {
		return nil
	}
	known := map[string]string{"@": strings.Join(args, " "), "*": strings.Join(args, " ")}
	for i, arg := range args {
		known[strconv.Itoa(i+1)] = arg
	}
	reads := givesToShell().Match(head)
	for text := range strings.SplitSeq(strings.ReplaceAll(string(head), "\\\n", " "), "\n") {
		if strings.HasPrefix(strings.TrimSpace(text), "#") {
			continue
		}
		text = expand(text, path, known)
		if set := assignment().FindStringSubmatch(text); set != nil {
			known[set[1]] = strings.Trim(set[2], `"'`)
		}
		words := strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(" \t\"'`;&|()<>=,", c) })
		lines = append(lines, scriptLine{text: text, words: words, ofParts: goesThrough().MatchString(text), reads: reads})
	}
	return lines
}

// expand puts in what is known: the script's own name, and variables.
func expand(text, path string, known map[string]string) string {
	text = ownFolder().ReplaceAllLiteralString(text, filepath.Dir(path))
	text = ownStem().ReplaceAllLiteralString(text, strings.TrimSuffix(path, filepath.Ext(path)))
	text = ownFile().ReplaceAllLiteralString(text, path)
	text = variable().ReplaceAllStringFunc(text, func(use string) string {
		part := variable().FindStringSubmatch(use)
		if value, ok := known[part[1]+part[3]]; ok && value != "" {
			return value
		}
		if part[2] != "" {
			return part[2]
		}
		return use
	})
	text = nameOf().ReplaceAllStringFunc(text, func(use string) string {
		part := nameOf().FindStringSubmatch(use)
		return strings.TrimSuffix(filepath.Base(part[1]), part[2])
	})
	text = folderOf().ReplaceAllStringFunc(text, func(use string) string {
		return filepath.Dir(strings.TrimSpace(folderOf().FindStringSubmatch(use)[1]))
	})
	return enterAndPwd().ReplaceAllStringFunc(text, func(use string) string {
		return strings.TrimSpace(enterAndPwd().FindStringSubmatch(use)[1])
	})
}
