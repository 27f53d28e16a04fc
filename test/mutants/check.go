// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

// check is one test program or package that can notice a fault.
type check struct {
	name    string
	env     []string
	command []string
	usual   time.Duration // what it takes without a fault
	again   bool          // it looks at the clock here and there: what fails must fail twice
}

const buildLimit = 5 * time.Minute

func (c *check) limit() time.Duration { return 3*c.usual + 20*time.Second }

// What make is told besides: warnings end no build. What runs over the end of an array is noticed, and a lock that is given
// back and that nobody has, as in the run with sanitizers that make test has.
const faultyCC = "CC=cc -w -DVGPU_TEST_LOCKS -fsanitize=bounds,object-size -fsanitize-undefined-trap-on-error"

func asExit(err error, exit **exec.ExitError) bool { return errors.As(err, exit) }

// suite is the tests of one tree, with what each takes.
type suite struct {
	tree   *tree
	checks map[string]*check
	build  map[string][]string // by area: the command that builds what changed
	cached map[string][]*check // by file
}

func newSuite(t *tree, number int, areas []string, seen *baseline) (*suite, error) {
	build, err := filepath.Abs(filepath.Join(t.root, "build"))
	if err != nil {
		return nil, err
	}
	s := &suite{tree: t, checks: map[string]*check{}, cached: map[string][]*check{}, build: map[string][]string{
		"interposer": {"make", faultyCC, "build-test-interposer"},
		"all":        {"make", "build", "build/test-spank/testhost", "build/test-spank/libslurm-vgpu.so"}, // scripts need the simulated driver
		"spank":      {"make", "plugin", "build/test-spank/testhost", "build/test-spank/libslurm-vgpu.so"},
	}}
	var all []*check
	if slices.Contains(areas, "interposer") {
		if err := s.make("interposer"); err != nil {
			return nil, err
		}
		if all, err = programs(build); err != nil {
			return nil, err
		}
	}
	if len(areas) > 1 || len(all) == 0 {
		if err := s.make("all"); err != nil {
			return nil, err
		}
		all = append(all, &check{name: "testhost", again: true,
			command: []string{"build/test-spank/testhost", build + "/spank_vgpu.so", build + "/test-spank/libslurm-vgpu.so"}})
		packages, err := packages()
		if err != nil {
			return nil, err
		}
		all = append(all, packages...)
	}
	// Two trees begin at different ends, and meet.
	if number%2 == 0 {
		slices.Reverse(all)
	}
	for _, c := range all {
		if c.usual, err = seen.of(t, c); err != nil {
			return nil, err
		}
		if c.usual != 0 {
			s.checks[c.name] = c
		}
	}
	return s, nil
}

func (s *suite) make(area string) error {
	how, err := s.tree.run(4*buildLimit, nil, s.build[area]...)
	if err == nil && how != passed {
		err = fmt.Errorf("%s does not build, see %s.log", area, s.tree.root)
	}
	return err
}

// The packages that have tests.
func packages() ([]*check, error) {
	list, err := exec.Command("go", "list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}",
		"./internal/...", "./prolog", "./epilog", "./gres", "./ctl", "./spank/launch").Output()
	if err != nil {
		return nil, err
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	var all []*check
	for folder := range strings.FieldsSeq(string(list)) {
		name, err := filepath.Rel(here, folder)
		if err != nil {
			return nil, err
		}
		all = append(all, &check{name: name, command: []string{"go", "test", "-vet=off", "-count=1", "-failfast", "./" + name}})
	}
	return all, nil
}

// The test programs of the interposer.
func programs(build string) ([]*check, error) {
	sources, err := filepath.Glob("test/interposer/*/*.c")
	if err != nil {
		return nil, err
	}
	env := []string{"VGPU_TEST_SIM=" + build + "/sim", "LD_PRELOAD=" + build + "/libslurm-vgpu.so"}
	var all []*check
	for _, source := range sources {
		name := strings.TrimSuffix(strings.TrimPrefix(source, "test/interposer/"), ".c")
		switch path.Dir(name) {
		case "bench", "helpers", "support":
			continue
		}
		// Only the program itself is to be preloaded, not unshare.
		all = append(all, &check{name: name, again: true, command: []string{"env", env[0], env[1], "build/test-interposer/" + name}})
	}
	for _, script := range []string{"route/bystanders.sh", "route/scope.sh"} {
		all = append(all, &check{name: script, env: env[:1], command: []string{"test/interposer/" + script, build + "/libslurm-vgpu.so"}})
	}
	return all, nil
}

// baseline is what every check takes without a fault, seen once for all trees.
type baseline struct {
	sync.Mutex
	once map[string]*sync.Once
	took map[string]time.Duration
	errs map[string]error
}

// of runs the check where no tree has; 0 where it fails. A busy machine may fail one that looks at the clock.
func (b *baseline) of(t *tree, c *check) (time.Duration, error) {
	b.Lock()
	once := b.once[c.name]
	if once == nil {
		once = new(sync.Once)
		b.once[c.name] = once
	}
	b.Unlock()
	once.Do(func() {
		took, err := measure(t, c)
		b.Lock()
		b.took[c.name], b.errs[c.name] = took, err
		b.Unlock()
	})
	b.Lock()
	defer b.Unlock()
	return b.took[c.name], b.errs[c.name]
}

func measure(t *tree, c *check) (time.Duration, error) {
	for try := 1; ; try++ {
		began := time.Now()
		how, err := t.run(buildLimit, c.env, c.command...)
		if err != nil || how == passed {
			return time.Since(began), err
		}
		if try == 3 || !c.again {
			fmt.Printf("left out, as it fails without any fault: %s, see %s.log\n", c.name, t.root)
			return 0, nil
		}
	}
}

// concerned is what may notice a fault in a file, the fastest first.
func (s *suite) concerned(area, file string) ([]*check, error) {
	if known, ok := s.cached[file]; ok {
		return known, nil
	}
	var names []string
	var err error
	if area == "interposer" {
		names, err = s.namedFor(file)
	} else {
		names, err = goConcerned(file)
	}
	if err != nil {
		return nil, err
	}
	var list []*check
	for _, name := range names {
		if c := s.checks[name]; c != nil {
			list = append(list, c)
		}
	}
	s.cached[file] = list
	return list, nil
}

// slow is what a program takes that is tried only where tests.txt names it.
const slow = 3 * time.Second

// Programs that tests.txt names for the file, and then the others that are fast.
func (s *suite) namedFor(file string) ([]string, error) {
	table, err := os.ReadFile(filepath.Join(s.tree.root, "test/mutants/tests.txt"))
	if err != nil {
		return nil, err
	}
	var first, rest []string
	for line := range strings.SplitSeq(string(table), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if ok, _ := path.Match(fields[0], strings.TrimPrefix(file, "interposer/")); ok {
			first = append(first, fields[1:]...)
		}
	}
	for name := range s.checks {
		if c := s.checks[name]; !slices.Contains(first, name) && c.command[0] != "go" && name != "testhost" && c.usual < slow {
			rest = append(rest, name)
		}
	}
	byTime := func(names []string) {
		sort.SliceStable(names, func(i, j int) bool { return s.usual(names[i]) < s.usual(names[j]) })
	}
	byTime(first)
	byTime(rest)
	return append(first, rest...), nil
}

func (s *suite) usual(name string) time.Duration {
	if c := s.checks[name]; c != nil {
		return c.usual
	}
	return 0
}

// The package of the file, then those that are made of it, the commands last.
func goConcerned(file string) ([]string, error) {
	own := filepath.Dir(file)
	if own == "gres" && filepath.Ext(file) == ".lua" {
		return []string{"gres"}, nil
	}
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}`,
		"./internal/...", "./prolog", "./epilog", "./gres", "./ctl", "./spank/launch").Output()
	if err != nil {
		return nil, err
	}
	names := []string{own}
	if own == "spank" || own == "spank/launch" {
		names = append(names, "testhost")
	}
	const module = "github.com/slurm-vgpu/slurm-vgpu/"
	for line := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
		fields := strings.Fields(line)
		name := strings.TrimPrefix(fields[0], module)
		if name != own && slices.Contains(fields[1:], module+own) {
			names = append(names, name)
			if name == "spank" {
				names = append(names, "testhost")
			}
		}
	}
	return names, nil
}
