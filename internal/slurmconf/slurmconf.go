// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package slurmconf reads files in the style of slurm.conf: slurm.conf itself, gres.conf and
// cgroup.conf, and plugstack.conf. It reads what Slurm would read, for checking a site's files; it writes nothing.
package slurmconf

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
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

var errNoCluster = errors.New("no line before it has ClusterName, which %c stands for")

// Pair is one Key=Value of a line. Key is in lower case, Value without quotes.
type Pair struct {
	Key    string
	Name   string // Key as it is written
	Append bool   // Key+=Value
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
	// Untaken is what no daemon of Slurm takes: with it in a file they do not start.
	Untaken []Untaken
}

// Untaken is text that Slurm's parser leaves over.
type Untaken struct{ Place, Text string }

// Read reads a file and its Includes. An include that cannot be read is an error, as it is to Slurm.
func Read(path string) (File, error) {
	file := File{Path: path}
	if err := file.read(path, 0); err != nil {
		return File{}, fmt.Errorf("read %s: %w", path, err)
	}
	return file, nil
}

func (f *File) read(path string, depth int) error {
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
		text, more := continued(uncomment(text))
		if joined += text; more {
			continue
		}
		text, joined = unescape(joined), ""
		if strings.TrimSpace(text) == "" {
			continue
		}
		if name, ok := include(text); ok {
			if err := f.include(name, path, depth); err != nil {
				return fmt.Errorf("%s:%d: include: %w", path, start, err)
			}
			continue
		}
		if len(f.Lines)+len(f.Untaken) >= maxLines {
			return fmt.Errorf("%s: %w: more than %d lines", path, ErrLimits, maxLines)
		}
		line := Line{File: path, Number: start}
		line.Pairs, text = pairs(text)
		if text != "" {
			f.Untaken = append(f.Untaken, Untaken{line.Place(), text})
		}
		if len(line.Pairs) > 0 {
			f.Lines = append(f.Lines, line)
		}
	}
	return nil
}

// include reads a file that a line of another names. It is beside that one (22.05: parse_config.c, _add_full_path), or beside the file
// that was read first (24.11, where scontrol looks nowhere else).
func (f *File) include(name, from string, depth int) error {
	if strings.Contains(name, "%c") {
		cluster, _, ok := f.Value("ClusterName")
		if !ok {
			return fmt.Errorf("%s: %w", name, errNoCluster)
		}
		name = strings.ReplaceAll(name, "%c", strings.ToLower(cluster))
	}
	if !filepath.IsAbs(name) {
		beside, first := filepath.Join(filepath.Dir(from), name), filepath.Join(filepath.Dir(f.Path), name)
		if _, err := os.Stat(beside); errors.Is(err, fs.ErrNotExist) {
			beside = first
		}
		name = beside
	}
	return f.read(name, depth+1)
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
	escaped := false
	for i := range len(text) {
		if text[i] == '#' && !escaped {
			return text[:i]
		}
		escaped = text[i] == '\\' && !escaped
	}
	return text
}

// continued says whether the next line belongs to this one: it ends with a backslash that none escapes, and perhaps blanks.
func continued(text string) (string, bool) {
	trimmed := strings.TrimRight(text, blanks)
	slashes := len(trimmed) - len(strings.TrimRight(trimmed, `\`))
	if slashes%2 == 1 {
		return trimmed[:len(trimmed)-1], true
	}
	return text, false
}

// unescape takes each escaping backslash away.
func unescape(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' {
			if i++; i == len(text) {
				break
			}
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

// blanks are what isspace(3) takes for one.
const blanks = " \t\r\v\f\n"

// include is the file that a line includes; a blank before the word makes it no include.
func include(text string) (name string, ok bool) {
	const word = "include"
	if len(text) <= len(word) || !strings.EqualFold(text[:len(word)], word) || !strings.ContainsRune(blanks, rune(text[len(word)])) {
		return "", false
	}
	fields := strings.Fields(text[len(word):])
	if len(fields) == 0 || strings.HasPrefix(fields[0], "=") {
		return "", false
	}
	return fields[0], true
}

// pairs are the Key=Value of a line, with blanks around the = or without, and what follows them that is none.
func pairs(text string) (list []Pair, rest string) {
	for rest = strings.Trim(text, blanks); rest != ""; {
		pair, after, ok := pair(rest)
		if !ok {
			return list, rest
		}
		list, rest = append(list, pair), strings.TrimLeft(after, blanks)
	}
	return list, ""
}

// pair is the first Key=Value, as the pattern of parse_config.c has it.
func pair(text string) (p Pair, rest string, ok bool) {
	key := strings.IndexFunc(text, func(c rune) bool {
		return c != '_' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z')
	})
	if key <= 0 {
		return p, text, false
	}
	p.Name = text[:key]
	p.Key = strings.ToLower(p.Name)
	rest = strings.TrimLeft(text[key:], blanks)
	if rest != "" && strings.IndexByte("-*+/", rest[0]) >= 0 {
		p.Append = rest[0] == '+'
		rest = rest[1:]
	}
	if rest, ok = strings.CutPrefix(rest, "="); !ok {
		return p, text, false
	}
	rest = strings.TrimLeft(rest, blanks)
	if quoted, is := strings.CutPrefix(rest, `"`); is {
		value, after, closed := strings.Cut(quoted, `"`)
		if closed && (after == "" || strings.IndexByte(blanks, after[0]) >= 0) {
			p.Value = value
			return p, after, true
		}
	}
	end := strings.IndexAny(rest, blanks)
	if end < 0 {
		end = len(rest)
	}
	p.Value = rest[:end]
	return p, rest[end:], p.Value != ""
}

// Value is a setting of a file that is no list of things: the last line counts, "+=" adds to it with
// a comma. The line is where it stands.
func (f File) Value(key string) (value string, at Line, ok bool) {
	key = strings.ToLower(key)
	for _, line := range f.Lines {
		// Lines such as NodeName=… may hold keys of the same name as a setting.
		if line.Pairs[0].Key != key {
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

// All are the lines of a setting that may be given more than once.
func (f File) All(key string) (lines []Line) {
	for _, line := range f.Lines {
		if line.Pairs[0].Key == strings.ToLower(key) {
			lines = append(lines, line)
		}
	}
	return lines
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
