// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table of file formats has the versions of the pages that are compiled.
func TestModelHasTheVersionsOfPages(t *testing.T) {
	header, err := os.ReadFile(filepath.Join(top, "interposer/api/layout.h"))
	if err != nil {
		t.Fatal(err)
	}
	model, err := os.ReadFile(filepath.Join(top, "docs/model.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name, word := range map[string]string{"VGPU_LAYOUT_VERSION": "layout", "VGPU_VGPUD_VERSION": "vgpud"} {
		found := regexp.MustCompile(`#define ` + name + ` (\d+)u`).FindSubmatch(header)
		if found == nil {
			t.Fatalf("layout.h has no %s", name)
		}
		if want := "| " + word + " " + string(found[1]) + " |"; strings.Count(string(model), want) != 2 {
			t.Errorf("docs/model.md has not two rows with %q", want)
		}
	}
}

// internal/README.md lists each package once.
func TestPackagesAreListed(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "internal/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| \\d? ?\\| `(\\w+)` \\|").FindAllStringSubmatch(string(text), -1) {
		listed[row[1]] = true
	}
	folders, err := filepath.Glob(filepath.Join(top, "internal/*/"))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		sources, _ := filepath.Glob(filepath.Join(folder, "*.go"))
		name := filepath.Base(folder)
		if len(sources) > 0 && !listed[name] {
			t.Errorf("internal/README.md does not list %s", name)
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("internal/README.md lists %s, which is not there", name)
	}
}
