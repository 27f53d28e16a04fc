// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Where the tables stand, below the root of the repository.
const (
	apiDir      = "interposer/api"
	namesDir    = "guard/names"
	classesGlob = "test/coverage/classes-*.txt"
	testsDir    = "test/interposer"
	document    = "docs/cuda-coverage.md"
)

// usedOnly is the kind of rows that are called by the interposer, but not wrapped.
const usedOnly = "USE"

// classes in the order of the document. All but the last ask for a row or for a reason.
var classes = []string{"allocates", "frees", "shares", "maps", "launches", "reports", "lookup", neither}

const neither = "neither"

// notYet begins the reason of what is planned.
const notYet = "not yet: "

// rule is one line of a classes file.
type rule struct {
	where          string // file:line
	class, pattern string
	reason         string // why no row is needed, or notYet and what is missing; may be empty
}

// tables is everything that is committed.
type tables struct {
	names map[string]bool   // every known entry point
	rows  map[string]string // symbol → kind, of interposer/api/*.def
	rules []rule
}

func readTables(root string) (tables, error) {
	var t tables
	var err error
	if t.names, err = readNames(root); err != nil {
		return t, fmt.Errorf("reading names: %w", err)
	}
	if t.rows, err = readRows(root); err != nil {
		return t, fmt.Errorf("reading rows: %w", err)
	}
	if t.rules, err = readRules(root); err != nil {
		return t, fmt.Errorf("reading classes: %w", err)
	}
	return t, nil
}

// lines calls f for every line that is neither empty nor a comment.
func lines(file string, f func(where string, fields []string) error) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if err := f(fmt.Sprintf("%s:%d", filepath.Base(file), number), fields); err != nil {
			return err
		}
	}
	return nil
}

// matching is Glob that wants to find something.
func matching(root, pattern string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, pattern))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no file %s", pattern)
	}
	return files, err
}

var entryPoint = regexp.MustCompile(`^(cu|nvml)[A-Z]\w*$`)

func readNames(root string) (map[string]bool, error) {
	files, err := matching(root, namesDir+"/*.txt")
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, file := range files {
		err := lines(file, func(where string, fields []string) error {
			if len(fields) != 1 || !entryPoint.MatchString(fields[0]) {
				return fmt.Errorf("%s: not a name of an entry point", where)
			}
			names[fields[0]] = true
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

var tableRow = regexp.MustCompile(`\bVGPU_(?:CUDA|NVML)\s*\(\s*(\w+)\s*,\s*(\w+)`)

func readRows(root string) (map[string]string, error) {
	files, err := matching(root, apiDir+"/*.def")
	if err != nil {
		return nil, err
	}
	rows := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		found := tableRow.FindAllSubmatch(blockComment.ReplaceAll(text, nil), -1)
		if len(found) == 0 {
			return nil, fmt.Errorf("%s: no row in it", file)
		}
		for _, m := range found {
			kind, symbol := string(m[1]), string(m[2])
			if rows[symbol] != "" {
				return nil, fmt.Errorf("%s: a second row of %s", file, symbol)
			}
			rows[symbol] = kind
		}
	}
	return rows, nil
}

func readRules(root string) ([]rule, error) {
	files, err := matching(root, classesGlob)
	if err != nil {
		return nil, err
	}
	var rules []rule
	for _, file := range files {
		err := lines(file, func(where string, fields []string) error {
			if len(fields) < 2 {
				return fmt.Errorf("%s: want a class, a pattern and perhaps a reason", where)
			}
			r := rule{where: where, class: fields[0], pattern: fields[1], reason: strings.Join(fields[2:], " ")}
			if !slices.Contains(classes, r.class) {
				return fmt.Errorf("%s: class %q is none of %s", where, r.class, strings.Join(classes, ", "))
			}
			if _, err := path.Match(r.pattern, ""); err != nil {
				return fmt.Errorf("%s: pattern %q: %w", where, r.pattern, err)
			}
			if r.class == neither && r.reason != "" {
				return fmt.Errorf("%s: class %s needs no reason", where, neither)
			}
			rules = append(rules, r)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return rules, nil
}

var variant = regexp.MustCompile(`^(\w+?)((?:_v\d+)?(?:_pt[sd][sz])?)$`)

// splitVariant takes the version and the per-thread-stream mark off a symbol.
func splitVariant(symbol string) (base, tail string) {
	m := variant.FindStringSubmatch(symbol)
	return m[1], m[2]
}

// entry is one entry point as the tables see it.
type entry struct {
	symbol, base, tail string
	class              string
	kind               string // of its row; empty without one, and for rows of kind USE
	reason             string // of an entry without a row
}

var errUnknown = errors.New("matches no pattern in " + classesGlob)

// classify also says which rule it was.
func (t tables) classify(symbol string) (entry, int, error) {
	e := entry{symbol: symbol}
	e.base, e.tail = splitVariant(symbol)
	i := slices.IndexFunc(t.rules, func(r rule) bool {
		ok, _ := path.Match(r.pattern, e.base) // checked when it was read
		return ok
	})
	if i < 0 {
		return e, i, fmt.Errorf("%s %w", symbol, errUnknown)
	}
	e.class = t.rules[i].class
	if kind := t.rows[symbol]; kind != "" && kind != usedOnly {
		e.kind = kind
		return e, i, nil
	}
	e.reason = t.rules[i].reason
	if e.reason == "" && e.class != neither {
		return e, i, fmt.Errorf("%s %s, has no row in %s, and %s gives no reason", symbol, e.class, apiDir, t.rules[i].where)
	}
	return e, i, nil
}

// check classifies every known entry point, and says all that is wrong with the tables.
func (t tables) check() ([]entry, error) {
	var entries []entry
	var wrong []error
	used := make([]bool, len(t.rules))
	for _, symbol := range sorted(t.names) {
		e, i, err := t.classify(symbol)
		if i >= 0 {
			used[i] = true
		}
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		entries = append(entries, e)
	}
	for i, r := range t.rules {
		if !used[i] {
			wrong = append(wrong, fmt.Errorf("%s: %s matches no entry point that an earlier line has not", r.where, r.pattern))
		}
	}
	for _, symbol := range sorted(t.rows) {
		if !t.names[symbol] {
			wrong = append(wrong, fmt.Errorf("%s has a row in %s, but no header is known to declare it", symbol, apiDir))
		}
	}
	return entries, errors.Join(wrong...)
}
