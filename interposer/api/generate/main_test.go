// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const header = "../layout.h"

// twinOf is the twin of the header with something changed.
func twinOf(t *testing.T, old, changed string) (string, error) {
	t.Helper()
	text, err := os.ReadFile(header)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("the header has no %q", old)
	}
	path := filepath.Join(t.TempDir(), "layout.h")
	if err := os.WriteFile(path, []byte(strings.Replace(string(text), old, changed, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	twin, err := twin(path)
	return string(twin), err
}

func TestTheTwinIsOfThisHeader(t *testing.T) {
	want, err := twin(header)
	if err != nil {
		t.Fatal(err)
	}
	is, err := os.ReadFile("../../../internal/ledger/layout.go")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(is)); diff != "" {
		t.Errorf("internal/ledger/layout.go is of another layout.h: run make generate\n%s", diff)
	}
}

func TestAFigureIsOneLine(t *testing.T) {
	twin, err := twinOf(t, "uint64_t refusals[VGPU_MAX_DEVICES]", "uint64_t refusals[VGPU_MAX_DEVICES]; uint64_t made_up_bytes[VGPU_MAX_DEVICES]")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"MadeUpBytes [16]uint64", "MadeUpBytes uint64 `json:\"made_up_bytes\"`", "f.MadeUpBytes[slice]",
		"max(u.MadeUpBytes, other.MadeUpBytes)", "min(u.MadeUpBytes, bytes)"} {
		if !strings.Contains(twin, want) {
			t.Errorf("no %q", want)
		}
	}
}

// Go's encoding knows no padding. The sizes stay, which layout.h holds.
func TestAHoleIsRefused(t *testing.T) {
	for field, changed := range map[string]string{"uint32_t verdict;": "", "uint64_t credit_at_ns;": "uint32_t made_up;"} {
		if _, err := twinOf(t, field, changed); err == nil || !strings.Contains(err.Error(), "has a hole") {
			t.Errorf("%s: %v", changed, err)
		}
	}
}
