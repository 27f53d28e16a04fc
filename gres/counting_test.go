// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
)

func TestWhoPicksTheGPU(t *testing.T) {
	with := func(change func(*config.Config)) config.Config {
		cfg := config.Default()
		change(&cfg)
		return cfg
	}
	said := func(shards bool) config.Config {
		return with(func(c *config.Config) { c.Shards, c.ShardsSaid = shards, true })
	}
	whole := with(func(c *config.Config) { c.WholeGPUs = true })
	for _, tt := range []struct {
		name, version string
		cfg           config.Config
		flags         countingFlags
		shards        bool
		why           string
	}{
		{"not known which Slurm", "", config.Default(), countingFlags{}, false, "it is not known which one runs here"},
		{"said", "-", said(true), countingFlags{}, true, ""},
		{"old", "23.02.7", config.Default(), countingFlags{}, false, "Slurm 23.02.7 can give"},
		{"new", "26.05.5", config.Default(), countingFlags{}, true, "Write shards: true into config.yaml"},
		{"said otherwise", "-", said(false), countingFlags{}, false, ""},
		{"whole_gpus", "-", whole, countingFlags{}, false, ""},
		{"counts by flag", "-", config.Default(), countingFlags{counts: true}, false, ""},
		{"counts against the file", "-", said(true), countingFlags{counts: true}, false, "until it says shards: false"},
		{"shards against the file", "26.05.5", said(false), countingFlags{shards: true}, true, "until it says shards: true"},
		{"shards of an old Slurm", "22.05.8", config.Default(), countingFlags{shards: true}, true, "Slurm 22.05.8 can give"},
	} {
		got, err := tt.flags.counting(func() string {
			if tt.version == "-" {
				t.Errorf("%s: Slurm is asked for its version", tt.name)
			}
			return tt.version
		}, tt.cfg)
		if err != nil || got.shards != tt.shards || (got.why == "") != (tt.why == "") || !strings.Contains(got.why, tt.why) {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
	}
	if _, err := (countingFlags{shards: true}).counting(func() string { return "26.05.5" }, whole); err == nil {
		t.Error("shards beside whole_gpus")
	}
}
