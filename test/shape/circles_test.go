// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package shape

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	definedInC = regexp.MustCompile(`(?m)^[a-z][\w *]*\b(vgpu_\w+)\([^;{]*\)\n\{`)
	calledInC  = regexp.MustCompile(`\b(vgpu_\w+)\(`)
)

// circle is what tsort says of files whose functions call each other in a circle; empty where there is none.
func circle(t *testing.T, files map[string]string) string {
	t.Helper()
	home := map[string]string{}
	for name, text := range files {
		for _, found := range definedInC.FindAllStringSubmatch(text, -1) {
			home[found[1]] = name
		}
	}
	var calls, says strings.Builder
	for name, text := range files {
		for _, found := range calledInC.FindAllStringSubmatch(text, -1) {
			if to := home[found[1]]; to != "" {
				fmt.Fprintln(&calls, name, to)
			}
		}
	}
	tsort := exec.Command("tsort")
	tsort.Stdin, tsort.Stderr = strings.NewReader(calls.String()), &says
	if err := tsort.Run(); err != nil && says.Len() == 0 {
		t.Fatal(err)
	}
	return says.String()
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
	if found := circle(t, files); found != "" {
		t.Error(found)
	}
	files["process.c"] += "\nvoid vgpu_extra(void)\n{\n\tvgpu_isolated_end(0);\n}\n"
	files["isolate.c"] += "\nstatic void extra(void)\n{\n\tvgpu_extra();\n}\n"
	if found := circle(t, files); !strings.Contains(found, "process.c") {
		t.Errorf("a circle through process.c is not found: %s", found)
	}
}
