// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// mutant is one small fault: the bytes from Start to End of a file become New.
type mutant struct {
	File string
	In   string // the function around it
	Line string // the text of its line, without what surrounds it
	What string // "< becomes <="
	Nth  int    // the same once more in the same function

	Start, End int
	New        string
	Number     int // of the line, to be shown; it is no part of the key
}

// key says which mutant it is, however the lines around it move.
func (m mutant) key() string {
	key := m.File + "\t" + m.In + "\t" + m.Line + "\t" + m.What
	if m.Nth > 1 {
		key += fmt.Sprintf(" (%d)", m.Nth)
	}
	return key
}

func (m mutant) String() string { return fmt.Sprintf("%s:%d %s: %s", m.File, m.Number, m.In, m.What) }

// rank orders the mutants of an area by a seed: a sample stays the same where other lines change.
func (m mutant) rank(seed string) string {
	sum := sha256.Sum256([]byte(seed + "\n" + m.key()))
	return string(sum[:])
}

func (m mutant) apply(text []byte) []byte {
	return bytes.Join([][]byte{text[:m.Start], text[m.End:]}, []byte(m.New))
}

// finder collects the mutants of one file.
type finder struct {
	file string
	text []byte
	in   string
	all  []mutant
}

func (f *finder) add(start, end int, replacement, what string) {
	from := bytes.LastIndexByte(f.text[:start], '\n') + 1
	line, _, _ := bytes.Cut(f.text[from:], []byte("\n"))
	f.all = append(f.all, mutant{
		File: f.file, In: f.in, Line: strings.Join(strings.Fields(string(line)), " "), What: what,
		Start: start, End: end, New: replacement,
		Number: bytes.Count(f.text[:start], []byte("\n")) + 1,
	})
}

// find is every mutant of a file, numbered where several are alike.
func find(root, file string) ([]mutant, error) {
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, err
	}
	f := finder{file: file, text: text}
	switch filepath.Ext(file) {
	case ".go":
		err = f.findGo()
	case ".c":
		f.findTokens(languageC)
	case ".lua":
		f.findTokens(languageLua)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	sort.SliceStable(f.all, func(i, j int) bool { return f.all[i].Start < f.all[j].Start })
	seen := map[string]int{}
	for i := range f.all {
		key := f.all[i].key()
		seen[key]++
		f.all[i].Nth = seen[key]
	}
	return f.all, nil
}

// What a comparison, a connection or a sum becomes, in each language that has it.
var swaps = map[string]string{
	"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "~=": "==",
	"&&": "||", "||": "&&", "and": "or", "or": "and",
	"+": "-", "-": "+", "+=": "-=", "-=": "+=",
	"true": "false", "false": "true",
}

// number is what a small constant becomes; large ones are times and sizes, of which one more or less says nothing.
func number(digits string) (string, bool) {
	var n int
	if len(digits) > 3 {
		return "", false
	}
	if _, err := fmt.Sscanf(digits, "%d", &n); err != nil || fmt.Sprint(n) != digits {
		return "", false
	}
	if n == 1 {
		return "0", true
	}
	return fmt.Sprint(n + 1), true
}
