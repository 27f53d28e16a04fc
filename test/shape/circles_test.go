// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package shape

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	definedInC = regexp.MustCompile(`(?m)^[a-z][\w *]*\b(vgpu_\w+)\([^;{]*\)\n\{`)
	calledInC  = regexp.MustCompile(`\b(vgpu_\w+)\(`)
)

// circle is a way from a file to itself by the functions that files call of each other; none where there is none.
func circle(files map[string]string) []string {
	home := map[string]string{}
	for name, text := range files {
		for _, found := range definedInC.FindAllStringSubmatch(text, -1) {
			home[found[1]] = name
		}
	}
	next := map[string][]string{}
	for name, text := range files {
		for _, found := range calledInC.FindAllStringSubmatch(text, -1) {
			if to := home[found[1]]; to != "" && to != name && !slices.Contains(next[name], to) {
				next[name] = append(next[name], to)
			}
		}
		slices.Sort(next[name])
	}
	done := map[string]bool{}
	var walk func(way []string) []string
	walk = func(way []string) []string {
		for _, to := range next[way[len(way)-1]] {
			if at := slices.Index(way, to); at >= 0 {
				return append(slices.Clone(way[at:]), to)
			}
			if !done[to] {
				if found := walk(append(slices.Clone(way), to)); found != nil {
					return found
				}
			}
		}
		done[way[len(way)-1]] = true
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(next)) {
		if found := walk([]string{name}); found != nil {
			return found
		}
	}
	return nil
}

// Files of the plugin call each other one way.
func TestFilesOfThePluginFormNoCircle(t *testing.T) {
	names, err := filepath.Glob(filepath.Join(root, "spank/*.c"))
	if err != nil || len(names) < 10 {
		t.Fatalf("%v: %v", names, err)
	}
	files := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[filepath.Base(name)] = string(text)
	}
	if found := circle(files); found != nil {
		t.Errorf("in a circle: %s", strings.Join(found, " -> "))
	}
	files["process.c"] += "\nvoid vgpu_extra(void)\n{\n\tvgpu_isolated_end(0);\n}\n"
	files["isolate.c"] += "\nstatic void extra(void)\n{\n\tvgpu_extra();\n}\n"
	if found := circle(files); !slices.Contains(found, "process.c") {
		t.Errorf("a circle through process.c is not found: %v", found)
	}
}
