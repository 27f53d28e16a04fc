// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// What became of a mutant.
const (
	noticed    = "noticed"
	byTime     = "timeout"
	missed     = "not noticed"
	equivalent = "equivalent"
	unbuilt    = "does not build"
)

type verdict struct {
	Key     string  `json:"mutant"`
	Verdict string  `json:"verdict"`
	By      string  `json:"by,omitempty"`
	Seconds float64 `json:"seconds"`
}

// book keeps verdicts in a file, so that a run that was interrupted goes on where it was.
type book struct {
	sync.Mutex
	file  *os.File
	known map[string]verdict
}

func openBook(path string, forget func(verdict) bool) (*book, error) {
	b := &book{known: map[string]verdict{}}
	if old, err := os.Open(path); err == nil {
		lines := bufio.NewScanner(old)
		for lines.Scan() {
			var v verdict
			// The last line of a run that was killed may be half a one.
			if json.Unmarshal(lines.Bytes(), &v) == nil {
				b.known[v.Key] = v
			}
		}
		old.Close()
	}
	for key, v := range b.known {
		if forget(v) {
			delete(b.known, key)
		}
	}
	var err error
	b.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	return b, err
}

func (b *book) get(m mutant) (verdict, bool) {
	b.Lock()
	defer b.Unlock()
	v, ok := b.known[m.key()]
	return v, ok
}

func (b *book) put(v verdict) error {
	b.Lock()
	defer b.Unlock()
	b.known[v.Key] = v
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = b.file.Write(append(line, '\n'))
	return err
}

// judge puts the fault in, builds, runs the tests that it concerns until one notices, and takes it out.
func (s *suite) judge(area string, m mutant) (v verdict, err error) {
	path := filepath.Join(s.tree.root, m.File)
	text, err := os.ReadFile(path)
	if err != nil {
		return v, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return v, err
	}
	fmt.Fprintf(s.tree.log, "==== %s\n", m)
	if err := os.WriteFile(path, m.apply(text), info.Mode()); err != nil {
		return v, err
	}
	defer func() {
		if back := os.WriteFile(path, text, info.Mode()); err == nil {
			err = back
		}
	}()
	v = verdict{Key: m.key()}
	v.Verdict, v.By, err = s.try(area, m.File)
	return v, err
}

func (s *suite) try(area, file string) (is, by string, err error) {
	build := s.build[area]
	if build == nil && filepath.Ext(file) == ".go" {
		build = []string{"go", "build", "-o", os.DevNull, "./" + filepath.Dir(file)}
	}
	if build != nil {
		if how, err := s.tree.run(buildLimit, nil, build...); err != nil || how != passed {
			return unbuilt, "", err
		}
	}
	checks, err := s.concerned(area, file)
	if err != nil {
		return "", "", err
	}
	for _, c := range checks {
		if c.name == "testhost" && area != "spank" {
			if how, err := s.tree.run(buildLimit, nil, s.build["spank"]...); err != nil || how != passed {
				return unbuilt, "", err
			}
		}
		how, err := s.tree.run(c.limit(), c.env, c.command...)
		if err == nil && how == failed && c.again {
			how, err = s.tree.run(c.limit(), c.env, c.command...)
		}
		switch {
		case err != nil:
			return "", "", err
		case how == failed:
			return noticed, c.name, nil
		case how == tooLong:
			return byTime, c.name, nil
		}
	}
	return missed, "", nil
}

// readEquivalents reads the mutants that change nothing that anybody can see: four lines each, the file and function, the
// line, the fault and the reason.
func readEquivalents(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	for i, paragraph := range strings.Split(string(text), "\n\n") {
		var lines []string
		for line := range strings.SplitSeq(paragraph, "\n") {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "# ") {
				lines = append(lines, line)
			}
		}
		if len(lines) == 0 {
			continue
		}
		file, in, ok := strings.Cut(lines[0], " ")
		if !ok || len(lines) < 4 {
			return nil, fmt.Errorf("%s: paragraph %d: want file and function, line, fault, reason", path, i+1)
		}
		reasons[strings.Join([]string{file, in, lines[1], lines[2]}, "\t")] = strings.Join(lines[3:], " ")
	}
	return reasons, nil
}
