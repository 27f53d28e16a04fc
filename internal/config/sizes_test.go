// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSizesAreReadAsTheOptionsAre(t *testing.T) {
	cfg, err := Load(write(t, "sizes: {Small: {mem: 8G}, half: {mem: 12.5%, cores: 50}, free: {cores: 0}, plain: {mem: 3000}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, size := range cfg.NamedSizes() {
		got[size.Name] = size.Encode()
	}
	if diff := cmp.Diff(map[string]string{"small": "mem=8192", "half": "mem=12.5%;cores=50", "free": "cores=0", "plain": "mem=3000"}, got); diff != "" {
		t.Error(diff)
	}
	many := "sizes:\n"
	for i := range maxSizes + 1 {
		many += fmt.Sprintf("  a%d: {mem: 1}\n", i)
	}
	if _, err := Load(write(t, many)); err == nil {
		t.Error("more sizes than a message can list")
	}
}

func TestSizesThatAreNone(t *testing.T) {
	for _, text := range []string{"{half: {mem: 8X}}", "{half: {cores: 101}}", "{half: {mem: 8G, place: pack}}", "{half: {}, small: {mem: 8G}}", "{half: }", "{half: 50%}",
		"{2: {mem: 8G}}", "{h200.half: {mem: 8G}}", "{a_b: {mem: 8G}}", "{" + strings.Repeat("a", 33) + ": {mem: 8G}}", "[half]", "half"} {
		_, err := Load(write(t, "sizes: "+text+"\n"))
		if err == nil || !strings.Contains(err.Error(), "sizes: ") || !strings.Contains(err.Error(), "is not a value of this key; accepted: at most 32 names") {
			t.Errorf("%s: %v", text, err)
		}
	}
	_, err := Load(write(t, "sizes: {half: {mem: 8X, cores: 50}, x: {}}\n"))
	if err == nil || !strings.Contains(err.Error(), "sizes: {half: {cores: 50, mem: 8X}, x: {}} is not") {
		t.Errorf("what was written is not shown: %v", err)
	}
}
