// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Command mutants puts small faults into the sources, one at a time and in copies of the tree, and asks
// the fast tests whether they notice. README.md says how to read what it prints.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"
)

// areas are the folders, and how many mutants are made of each when nobody says otherwise.
var areas = []struct {
	name  string
	made  int
	files []string
}{
	{"interposer", 110, []string{"interposer/*/*.c"}},
	{"spank", 35, []string{"spank/*.c", "spank/launch/*.go"}},
	{"internal", 110, []string{"internal/*/*.go"}},
	{"prolog", 20, []string{"prolog/*.go"}},
	{"epilog", 20, []string{"epilog/*.go"}},
	{"gres", 45, []string{"gres/*.lua", "gres/*.go"}},
}

const enough = 0.95

type options struct {
	seed, again, folder, only, file string
	made, trees                     int
	list                            bool
}

func main() {
	var o options
	flag.StringVar(&o.seed, "seed", "1", "another seed, other mutants")
	flag.StringVar(&o.only, "areas", "", "only these, separated by commas")
	flag.StringVar(&o.file, "file", "", "only files whose name contains this")
	flag.StringVar(&o.again, "again", "", "what to judge again: missed, all")
	flag.StringVar(&o.folder, "folder", "build/mutants", "where the copies and the verdicts lie")
	flag.IntVar(&o.made, "made", 0, "mutants of each area")
	flag.IntVar(&o.trees, "trees", 2, "how many are tried at the same time")
	flag.BoolVar(&o.list, "list", false, "only list them")
	flag.Parse()
	ok, err := run(o)
	if err != nil {
		fmt.Fprintf(os.Stderr, "mutants: %v\n", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(o options) (bool, error) {
	reasons, err := readEquivalents("test/mutants/equivalent.txt")
	if err != nil {
		return false, err
	}
	samples, err := sample(o, reasons)
	if err != nil || o.list {
		return true, err
	}
	if err := os.MkdirAll(o.folder, 0o755); err != nil {
		return false, err
	}
	b, err := openBook(filepath.Join(o.folder, "verdicts"), func(v verdict) bool {
		return o.again == "all" || o.again == "missed" && v.Verdict == missed
	})
	if err != nil {
		return false, err
	}
	if err := tryAll(o, samples, b, reasons); err != nil {
		return false, err
	}
	return report(samples, b, reasons), nil
}

// area is the mutants of a folder in the order of the seed, of which the first that build are tried.
type area struct {
	name   string
	wanted int
	order  []mutant
}

func sample(o options, reasons map[string]string) ([]area, error) {
	var all []area
	known := map[string]bool{}
	for _, a := range areas {
		one := area{name: a.name, wanted: a.made}
		if o.made > 0 {
			one.wanted = o.made
		}
		for _, pattern := range a.files {
			files, err := filepath.Glob(pattern)
			if err != nil {
				return nil, err
			}
			for _, file := range files {
				if strings.Contains(file, "_test.") || strings.Contains(file, "_fuzz.") {
					continue
				}
				found, err := find(".", file)
				if err != nil {
					return nil, err
				}
				for _, m := range found {
					known[m.key()] = true
				}
				if strings.Contains(file, o.file) {
					one.order = append(one.order, found...)
				}
			}
		}
		if o.only != "" && !strings.Contains(","+o.only+",", ","+a.name+",") {
			continue
		}
		sort.Slice(one.order, func(i, j int) bool { return one.order[i].rank(o.seed) < one.order[j].rank(o.seed) })
		fmt.Printf("%s: %d mutants can be made, %d are wanted\n", a.name, len(one.order), one.wanted)
		if o.list {
			for _, m := range one.order[:min(one.wanted, len(one.order))] {
				fmt.Printf("  %s\n      %s\n", m, m.Line)
			}
		}
		all = append(all, one)
	}
	for key := range reasons {
		if !known[key] {
			fmt.Printf("equivalent.txt: there is no such mutant (any more): %s\n", strings.ReplaceAll(key, "\t", " | "))
		}
	}
	return all, nil
}

// tryAll lets each tree take the next mutant until every area has as many as are wanted.
func tryAll(o options, samples []area, b *book, reasons map[string]string) error {
	work := make(chan func(*suite) error)
	seen := &baseline{once: map[string]*sync.Once{}, took: map[string]time.Duration{}, errs: map[string]error{}}
	errs := make(chan error, o.trees)
	stop := make(chan struct{})
	var once sync.Once
	var wait sync.WaitGroup
	var names []string
	for _, a := range samples {
		names = append(names, a.name)
	}
	for i := range o.trees {
		wait.Go(func() {
			if err := serve(filepath.Join(o.folder, fmt.Sprintf("tree%d", i+1)), i+1, names, seen, work); err != nil {
				errs <- err
				once.Do(func() { close(stop) })
			}
		})
	}
	for _, a := range samples {
		a.hand(work, stop, b, reasons)
	}
	close(work)
	wait.Wait()
	close(errs)
	return <-errs
}

func serve(root string, number int, names []string, seen *baseline, work <-chan func(*suite) error) error {
	var s *suite
	for do := range work {
		if s == nil {
			t, err := newTree(root)
			if err != nil {
				return err
			}
			if s, err = newSuite(t, number, names, seen); err != nil {
				return err
			}
		}
		if err := do(s); err != nil {
			return err
		}
	}
	return nil
}

// found counts the mutants of an area that do build, as far as is known.
type found struct {
	sync.Mutex
	good     int
	underway sync.WaitGroup
}

func (f *found) add(n int) int {
	f.Lock()
	defer f.Unlock()
	f.good += n
	return f.good
}

// enough waits for those that are tried when they would suffice.
func (f *found) enough(wanted int) bool {
	if f.add(0) < wanted {
		return false
	}
	f.underway.Wait()
	return f.add(0) >= wanted
}

// hand gives the area's mutants out. Those that do not build are known only afterwards, so it looks how many are missing then.
func (a area) hand(work chan<- func(*suite) error, stop <-chan struct{}, b *book, reasons map[string]string) {
	var f found
	for _, m := range a.order {
		if f.enough(a.wanted) {
			return
		}
		if _, ok := reasons[m.key()]; ok {
			f.add(1)
			continue
		}
		if v, ok := b.get(m); ok {
			if v.Verdict != unbuilt {
				f.add(1)
			}
			continue
		}
		number := f.add(1) // until it turns out not to build
		f.underway.Add(1)
		select {
		case work <- func(s *suite) error {
			defer f.underway.Done()
			v, err := a.try(s, m, number)
			if err != nil {
				return err
			}
			if v.Verdict == unbuilt {
				f.add(-1)
			}
			return b.put(v)
		}:
		case <-stop:
			return
		}
	}
	f.underway.Wait()
}

// try has a mutant judged, and prints the verdict.
func (a area) try(s *suite, m mutant, number int) (verdict, error) {
	began := time.Now()
	v, err := s.judge(a.name, m)
	if err != nil {
		return v, err
	}
	v.Seconds = time.Since(began).Seconds()
	if v.Verdict != unbuilt {
		fmt.Printf("%s %d/%d %s: %s %s (%.0f s)\n", a.name, number, a.wanted, m, v.Verdict, v.By, v.Seconds)
	}
	return v, nil
}
