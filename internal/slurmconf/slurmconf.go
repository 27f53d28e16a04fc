// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package slurmconf reads files in the style of slurm.conf: slurm.conf itself, gres.conf and
// cgroup.conf, and plugstack.conf. It reads what Slurm would read, for checking a site's files; it writes nothing.
package slurmconf

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
)

// Bounds: a site's files may be generated, and an Include may name the file that it stands in.
const (
	maxFileBytes    = 16 << 20
	maxIncludeDepth = 10
	maxLines        = 1 << 20
)

// ErrLimits is wrapped when files are larger or more deeply nested than any real ones.
var ErrLimits = errors.New("beyond all bounds")

// Pair is one Key=Value of a line. Key is in lower case, Value without quotes.
type Pair struct {
	Key    string
	Append bool // Key+=Value
	Value  string
}

// Line is one logical line: continued lines are one.
type Line struct {
	File   string
	Number int // of its first part
	Pairs  []Pair
}

// Get returns a value of the line.
func (l Line) Get(key string) (string, bool) {
	for _, pair := range l.Pairs {
		if pair.Key == key {
			return pair.Value, true
		}
	}
	return "", false
}

// Place is "file:line" for messages.
func (l Line) Place() string { return fmt.Sprintf("%s:%d", l.File, l.Number) }

// File is a file with all that it includes.
type File struct {
	Path  string
	Lines []Line
}

// Read reads a file and its Includes, which are relative to it. An include that cannot be read is an
// error, as it is to Slurm.
func Read(path string) (File, error) {
	file := File{Path: path}
	if err := file.read(path, filepath.Dir(path), 0); err != nil {
		return File{}, fmt.Errorf("read %s: %w", path, err)
	}
	return file, nil
}

func (f *File) read(path, base string, depth int) error {
	if depth > maxIncludeDepth {
		return fmt.Errorf("include %s: %w: %d files deep", path, ErrLimits, depth)
	}
	data, err := readBounded(path)
	if err != nil {
		return err
	}
	joined, start := "", 0
	for i, text := range strings.Split(string(data), "\n") {
		if joined == "" {
			start = i + 1
		}
		text = uncomment(strings.TrimSuffix(text, "\r"))
		if more, ok := strings.CutSuffix(text, `\`); ok {
			joined += more
			continue
		}
		text, joined = strings.TrimSpace(joined+text), ""
		if text == "" {
			continue
		}
		if name, ok := include(text); ok {
			if !filepath.IsAbs(name) {
				name = filepath.Join(base, name)
			}
			if err := f.read(name, base, depth+1); err != nil {
				return fmt.Errorf("%s:%d: include: %w", path, start, err)
			}
			continue
		}
		if len(f.Lines) >= maxLines {
			return fmt.Errorf("%s: %w: more than %d lines", path, ErrLimits, maxLines)
		}
		f.Lines = append(f.Lines, Line{File: path, Number: start, Pairs: pairs(text)})
	}
	return nil
}

func readBounded(path string) ([]byte, error) {
	open, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer open.Close()
	data, err := io.ReadAll(io.LimitReader(open, maxFileBytes+1))
	if err == nil && len(data) > maxFileBytes {
		err = fmt.Errorf("%s: %w: more than %d bytes", path, ErrLimits, maxFileBytes)
	}
	return data, err
}

// uncomment cuts at the first # that no backslash escapes, as Slurm does: quotes do not protect it.
func uncomment(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && text[i+1] == '#':
			out.WriteByte('#')
			i++
		case text[i] == '#':
			return strings.TrimRight(out.String(), " \t")
		default:
			out.WriteByte(text[i])
		}
	}
	return strings.TrimRight(out.String(), " \t")
}

func include(text string) (name string, ok bool) {
	word, rest, _ := strings.Cut(strings.ReplaceAll(text, "\t", " "), " ")
	rest = strings.TrimSpace(rest)
	return rest, strings.EqualFold(word, "include") && rest != "" && !strings.HasPrefix(rest, "=")
}

// pairs splits a line at blanks, except those in double quotes. A word without "=" has no value.
func pairs(text string) []Pair {
	var words []string
	var word strings.Builder
	quoted, started := false, false
	flush := func() {
		if started {
			words = append(words, word.String())
			word.Reset()
			started = false
		}
	}
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"':
			quoted, started = !quoted, true
		case (c == ' ' || c == '\t') && !quoted:
			flush()
		default:
			word.WriteByte(c)
			started = true
		}
	}
	flush()
	var list []Pair
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		key, appends := strings.CutSuffix(key, "+")
		list = append(list, Pair{Key: strings.ToLower(key), Append: appends, Value: value})
	}
	return list
}

// Value is a setting of a file that is no list of things: the last line counts, "+=" adds to it with
// a comma. The line is where it stands.
func (f File) Value(key string) (value string, at Line, ok bool) {
	key = strings.ToLower(key)
	for _, line := range f.Lines {
		// Lines such as NodeName=… may hold keys of the same name as a setting.
		if len(line.Pairs) == 0 || line.Pairs[0].Key != key {
			continue
		}
		pair := line.Pairs[0]
		if pair.Append && value != "" {
			value += "," + pair.Value
		} else {
			value = pair.Value
		}
		at, ok = line, true
	}
	return value, at, ok
}

// Words is a comma list in lower case.
func (f File) Words(key string) []string {
	value, _, _ := f.Value(key)
	var words []string
	for word := range strings.SplitSeq(value, ",") {
		if word = strings.ToLower(strings.TrimSpace(word)); word != "" {
			words = append(words, word)
		}
	}
	return words
}

// Node returns what slurm.conf says about a node, with what NodeName=DEFAULT lines before it say.
func (f File) Node(name string) (values map[string]string, at Line, ok bool) {
	defaults := make(map[string]string)
	for _, line := range f.Lines {
		names, is := line.Get("nodename")
		if !is || line.Pairs[0].Key != "nodename" {
			continue
		}
		if strings.EqualFold(names, "DEFAULT") {
			for _, pair := range line.Pairs[1:] {
				defaults[pair.Key] = pair.Value
			}
			continue
		}
		if !slurm.HostlistContains(names, name) {
			continue
		}
		values = make(map[string]string)
		maps.Copy(values, defaults)
		for _, pair := range line.Pairs[1:] {
			values[pair.Key] = pair.Value
		}
		at, ok = line, true
	}
	return values, at, ok
}

// NodeLines returns the lines of slurm.conf that are about a node. More than one is an error of Slurm's.
func (f File) NodeLines(name string) []Line {
	var lines []Line
	for _, line := range f.Lines {
		if names, is := line.Get("nodename"); is && line.Pairs[0].Key == "nodename" && slurm.HostlistContains(names, name) {
			lines = append(lines, line)
		}
	}
	return lines
}

// GRES returns the lines of gres.conf that are about a GRES on a node: those that name the node and
// those that name none.
func (f File) GRES(name, node string) []Line {
	var lines []Line
	for _, line := range f.Lines {
		names, has := line.Get("nodename")
		if has && !slurm.HostlistContains(names, node) {
			continue
		}
		if is, _ := line.Get("name"); strings.EqualFold(is, name) {
			lines = append(lines, line)
		}
	}
	return lines
}
