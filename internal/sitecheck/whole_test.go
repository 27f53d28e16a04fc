// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

func TestWholeGPULines(t *testing.T) {
	inv := device.Inventory{GPUs: []device.GPU{{Minor: 2, Type: "l4"}, {Minor: 0, Type: "h200"}, {Minor: 1, Type: "h200"}, {Minor: 4}}}
	want := []string{"NodeName=n1 Name=gpu Type=h200 File=/dev/nvidia[0-1] Flags=nvidia_gpu_env",
		"NodeName=n1 Name=gpu Type=l4 File=/dev/nvidia2 Flags=nvidia_gpu_env", "NodeName=n1 Name=gpu File=/dev/nvidia4 Flags=nvidia_gpu_env"}
	if diff := cmp.Diff(want, WholeGPULines("n1", "/dev", inv)); diff != "" {
		t.Error(diff)
	}
	if got := WholeGPUCounts(inv); got != "gpu:h200:2,gpu:l4:1,gpu:1" {
		t.Errorf("counts: %s", got)
	}
}

// withWhole is a site that lets slurm-vgpu place whole GPUs, and all of it right.
func withWhole(t *testing.T) (Site, string) {
	site, dir := goodSite(t)
	site.Config.WholeGPUs = true
	edit(t, filepath.Join(dir, "gres.conf"), "NodeName", "NodeName=n[1-2] Name=gpu Type=h200 File=/dev/nvidia[0-1] Flags=nvidia_gpu_env\nNodeName")
	edit(t, site.SlurmConf, "Gres=", "Gres=gpu:h200:2,")
	edit(t, filepath.Join(dir, "cgroup.conf"), "yes", "no")
	edit(t, filepath.Join(dir, "job_submit.lua"), ".lua\")", ".lua\")\nvgpu.whole_gpus = true")
	return site, dir
}

func TestWholeGPUsPlacedBesideSlices(t *testing.T) {
	site, dir := withWhole(t)
	if diff := cmp.Diff([]string{}, findings(t, site, dir)); diff != "" {
		t.Errorf("all is right: %s", diff)
	}
	for says, spoil := range map[string]func(Site, string){
		"no line with Name=gpu is about node n1":                            func(_ Site, dir string) { edit(t, filepath.Join(dir, "gres.conf"), "Name=gpu Type", "Name=nic Type") },
		"every GPU of the node belongs into gres/gpu":                       func(_ Site, dir string) { edit(t, filepath.Join(dir, "gres.conf"), "[0-1]", "0") },
		"node n1 offers no gpu":                                             func(s Site, _ string) { edit(t, s.SlurmConf, "gpu:h200:2,", "") },
		"ConstrainDevices=yes lets a job open the GPUs that Slurm numbered": func(_ Site, dir string) { edit(t, filepath.Join(dir, "cgroup.conf"), "no", "yes") },
		"vgpu-prolog refuses jobs with shards": func(_ Site, dir string) {
			edit(t, filepath.Join(dir, "gres.conf"), "NodeName", "Name=shard Count=143771 File=/dev/nvidia0\nNodeName")
		},
		"whole_gpus is on in config.yaml and not in the script": func(_ Site, dir string) { edit(t, filepath.Join(dir, "job_submit.lua"), "vgpu.whole", "--vgpu.whole") },
	} {
		site, dir := withWhole(t)
		spoil(site, dir)
		if got := findings(t, site, dir); len(got) != 1 || !strings.Contains(got[0], says) {
			t.Errorf("want %q: %q", says, got)
		}
	}
	site.Config.Isolation = "preload"
	if got := findings(t, site, dir); len(got) != 1 || !strings.Contains(got[0], "jobs are not kept from GPUs that are not theirs") {
		t.Errorf("without strict isolation: %q", got)
	}
}

func TestSlurmsGPUsBesideSlices(t *testing.T) {
	split := func() (Site, string) {
		site, dir := goodSite(t)
		inv := twoH200
		inv.GPUs = append([]device.GPU(nil), inv.GPUs...)
		inv.GPUs[1].Lost = "Slurm's"
		site.Inventory, site.Config.SlurmGPUs = &inv, []int{1}
		write(t, filepath.Join(dir, "gres.conf"), "Name=vgpu Count=10 Flags=CountOnly\nName=gpumem Count=143771 Flags=CountOnly\nName=gpucores Count=100 Flags=CountOnly\n"+
			"NodeName=n[1-2] Name=gpu File=/dev/nvidia1\n")
		edit(t, site.SlurmConf, "Gres=vgpu:20,gpumem:287542,gpucores:200", "Gres=gpu:1,vgpu:10,gpumem:143771,gpucores:100")
		return site, dir
	}
	site, dir := split()
	if diff := cmp.Diff([]string{}, findings(t, site, dir)); diff != "" {
		t.Errorf("all is right, ConstrainDevices as well: %s", diff)
	}
	for says, change := range map[string]func(*Site, string){
		"Slurm hands out /dev/nvidia0, and slices are placed on it as well": func(_ *Site, dir string) { edit(t, filepath.Join(dir, "gres.conf"), "nvidia1", "nvidia[0-1]") },
		"no job can get /dev/nvidia1":                                       func(_ *Site, dir string) { edit(t, filepath.Join(dir, "gres.conf"), "File=/dev/nvidia1", "Count=1") },
		"this node has no /dev/nvidia5":                                     func(s *Site, _ string) { s.Config.SlurmGPUs = []int{1, 5} },
		"gres/shard of Slurm's own GPUs was not tried": func(_ *Site, dir string) {
			edit(t, filepath.Join(dir, "gres.conf"), "NodeName", "Name=shard Count=8\nNodeName")
		},
	} {
		site, dir := split()
		change(&site, dir)
		if got := findings(t, site, dir); len(got) != 1 || !strings.Contains(got[0], says) {
			t.Errorf("want %q: %q", says, got)
		}
	}
}
