// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

func TestShardLines(t *testing.T) {
	inv := device.Inventory{GPUs: []device.GPU{{Minor: 2, Type: "l4", MemMiB: 23034}, {Minor: 0, Type: "h200", MemMiB: 143771}}}
	want := []string{"NodeName=n1 Name=gpu Type=h200 File=/dev/nvidia0 Flags=nvidia_gpu_env", "NodeName=n1 Name=gpu Type=l4 File=/dev/nvidia2 Flags=nvidia_gpu_env",
		"NodeName=n1 Name=shard Count=143771 File=/dev/nvidia0", "NodeName=n1 Name=shard Count=23034 File=/dev/nvidia2"}
	if diff := cmp.Diff(want, ShardLines("n1", "/dev", inv, 1)); diff != "" {
		t.Error(diff)
	}
	if got := ShardCounts(inv, 1.5); got != "gpu:h200:1,gpu:l4:1,shard:250207" {
		t.Errorf("counts: %s", got)
	}
	for version, want := range map[string]bool{"22.05.8": false, "23.11.4": false, "23.11.5": true, "24.05.0": true, "": false} {
		if got := CountsShards(version); got != want {
			t.Errorf("Slurm %s: %v", version, got)
		}
	}
}

// withShards is a site on which Slurm picks the GPUs, and all of it right.
func withShards(t *testing.T) (Site, string) {
	site, dir := goodSite(t)
	site.Config.Shards, site.Version = true, "24.11.5"
	edit(t, filepath.Join(dir, "gres.conf"), "NodeName", "NodeName=n[1-2] Name=gpu Type=h200 File=/dev/nvidia[0-1]\n"+
		"NodeName=n[1-2] Name=shard Count=143771 File=/dev/nvidia0\nNodeName=n[1-2] Name=shard Count=143771 File=/dev/nvidia1\nNodeName")
	edit(t, site.SlurmConf, "Gres=", "Gres=gpu:h200:2,shard:287542,")
	edit(t, site.SlurmConf, "GresTypes=", "GresTypes=gpu,shard,")
	edit(t, site.SlurmConf, "AccountingStorageTRES=", "AccountingStorageTRES=gres/gpu,gres/shard,")
	return site, dir
}

// aboutShards are the findings but for that the plugin of this test is of another Slurm.
func aboutShards(t *testing.T, site Site, dir string) (says []string) {
	for _, finding := range findings(t, site, dir) {
		if !strings.HasPrefix(finding, "plugstack") && !strings.HasPrefix(finding, "plugin") {
			says = append(says, finding)
		}
	}
	return says
}

func TestASiteWithShards(t *testing.T) {
	site, dir := withShards(t)
	if got := aboutShards(t, site, dir); len(got) > 0 {
		t.Errorf("all is right, ConstrainDevices as well: %q", got)
	}
	for says, spoil := range map[string]func(*Site, string){
		"Slurm 23.02.7 can give a GPU and shards of it to two jobs": func(s *Site, _ string) { s.Version = "23.02.7" },
		"no line with Name=gpu is about node n1":                    func(_ *Site, dir string) { edit(t, filepath.Join(dir, "gres.conf"), "Name=gpu", "Name=nic") },
		"every GPU of the node belongs into gres/gpu":               func(_ *Site, dir string) { edit(t, filepath.Join(dir, "gres.conf"), "[0-1]", "0") },
		"Count=10 of /dev/nvidia0: one shard is one MiB": func(_ *Site, dir string) {
			edit(t, filepath.Join(dir, "gres.conf"), "Count=143771 File=/dev/nvidia0", "Count=10 File=/dev/nvidia0")
		},
		"no line with Name=shard is about /dev/nvidia1 alone": func(_ *Site, dir string) {
			edit(t, filepath.Join(dir, "gres.conf"), "Count=143771 File=/dev/nvidia1", "Count=143771 File=/dev/nvidia2")
		},
		"does not offer both gpu and shard":                  func(s *Site, _ string) { edit(t, s.SlurmConf, "shard:287542,", "") },
		"GresTypes lacks gpu or shard":                       func(s *Site, _ string) { edit(t, s.SlurmConf, "GresTypes=gpu,shard,", "GresTypes=gpu,") },
		"AccountingStorageTRES lacks gres/gpu or gres/shard": func(s *Site, _ string) { edit(t, s.SlurmConf, "gres/gpu,gres/shard,", "gres/gpu,") },
		"cuts a slice into shards of several GPUs": func(s *Site, _ string) {
			edit(t, s.SlurmConf, "JobSubmit", "SelectTypeParameters=CR_Core,MULTIPLE_SHARING_GRES_PJ\nJobSubmit")
		},
		"shards is on in config.yaml and not in the script": func(_ *Site, dir string) {
			edit(t, filepath.Join(dir, "job_submit.lua"), ".lua\")", ".lua\")\nvgpu.shards = false")
		},
		"drain keeps slices from a GPU that Slurm goes on": func(s *Site, _ string) { s.Config.Drain = []device.UUID{"GPU-1"} },
		"no line with Name=shard is about node n1":         func(_ *Site, dir string) { editAll(t, filepath.Join(dir, "gres.conf"), "Name=shard", "Name=nic") },
	} {
		site, dir := withShards(t)
		spoil(&site, dir)
		if got := aboutShards(t, site, dir); len(got) != 1 || !strings.Contains(got[0], says) {
			t.Errorf("want %q: %q", says, got)
		}
	}
}

// A site with counts, on a Slurm that could pick the GPUs, is warned until it says that it keeps them.
func TestASiteThatCouldMoveToShards(t *testing.T) {
	for _, tt := range []struct {
		version string
		change  func(*Site)
		warns   bool
	}{
		{"24.11.5", func(*Site) {}, true},
		{"24.11.5", func(s *Site) { s.Config.WholeGPUs = true }, true},
		{"24.11.5", func(s *Site) { s.Config.ShardsSaid = true }, false},
		{"23.11.4", func(*Site) {}, false},
		{"", func(*Site) {}, false},
	} {
		site, _ := goodSite(t)
		site.Version = tt.version
		tt.change(&site)
		found, err := site.Check()
		warns := slices.ContainsFunc(found, func(f Finding) bool {
			return f.Check == "shards" && f.Warning && strings.Contains(f.Says, "can pick the GPU") && strings.Contains(f.Remedy, "shards: false")
		})
		if err != nil || warns != tt.warns {
			t.Errorf("Slurm %s, %+v: %v, %v", tt.version, site.Config, warns, err)
		}
	}
}

func editAll(t *testing.T, path, from, to string) {
	t.Helper()
	text, err := readText(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, strings.ReplaceAll(text, from, to))
}
