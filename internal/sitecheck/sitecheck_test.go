// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

var twoH200 = device.Inventory{GPUs: []device.GPU{
	{UUID: "GPU-a", Type: "h200", MemMiB: 143771}, {UUID: "GPU-b", Index: 1, Minor: 1, Type: "h200", MemMiB: 143771},
}}

// goodSite is a folder with everything that a node with two H200s needs.
func goodSite(t *testing.T) (Site, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"slurm.conf": `ClusterName=c
SlurmctldHost=elsewhere
GresTypes=vgpu,gpumem,gpucores
NodeName=n[1-2] CPUs=4 Gres=vgpu:20,gpumem:287542,gpucores:200
PrologFlags=Alloc,Contain
Prolog=DIR/vgpu-prolog
Epilog=DIR/epilog.sh
JobSubmitPlugins=lua
TaskPlugin=task/affinity,task/cgroup
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageTRES=gres/vgpu,gres/gpumem,gres/gpucores,gres/gpuutil
`,
		"gres.conf": `NodeName=n[1-2] Name=vgpu Count=20 Flags=CountOnly
NodeName=n[1-2] Name=gpumem Count=287542 Flags=CountOnly
Name=gpucores Count=200 Flags=CountOnly
`,
		"cgroup.conf":                "ConstrainDevices=yes\n",
		"plugstack.conf":             "include DIR/plugstack.conf.d/*.conf\n",
		"plugstack.conf.d/vgpu.conf": "# ours\nrequired DIR/spank_vgpu.so\n",
		"job_submit.lua":             `local vgpu = dofile("/usr/share/slurm-vgpu/vgpu.lua")`,
		"vgpu-prolog":                "#!/bin/sh\n",
		"epilog.sh":                  "#!/bin/sh\nexec /usr/lib/slurm-vgpu/vgpu-epilog\n",
	} {
		write(t, filepath.Join(dir, name), strings.ReplaceAll(text, "DIR", dir))
	}
	plugin(t, dir)
	return Site{Node: "n1", SlurmConf: filepath.Join(dir, "slurm.conf"), Config: config.Default(), Inventory: &twoH200, Version: "22.05.8"}, dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// edit replaces text in a file of the site; the old text must be there.
func edit(t *testing.T, path, from, to string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), from) {
		t.Fatalf("%s has no %q", path, from)
	}
	write(t, path, strings.Replace(string(data), from, to, 1))
}

// findings is what is wrong, as "check: says -> remedy", without the folder's name.
func findings(t *testing.T, site Site, dir string) []string {
	t.Helper()
	all, err := site.Check()
	if err != nil {
		t.Fatal(err)
	}
	list := []string{}
	fine := map[string]bool{}
	for _, f := range all {
		fine[f.Check] = fine[f.Check] || f.OK
	}
	for _, f := range all {
		if fine[f.Check] && !f.OK && f.Check != "plugstack" { // which may be found and yet be optional
			t.Errorf("%s is said to be fine, and: %s", f.Check, f.Says)
		}
		if !f.OK && !f.Warning {
			list = append(list, strings.ReplaceAll(f.Check+": "+f.Says+" -> "+f.Remedy, dir, "DIR"))
		}
	}
	return list
}

func TestGoodSite(t *testing.T) {
	site, dir := goodSite(t)
	if diff := cmp.Diff([]string{}, findings(t, site, dir)); diff != "" {
		t.Error(diff)
	}
	all, err := site.Check()
	if err != nil {
		t.Fatal(err)
	}
	var checks []string
	for _, f := range all {
		checks = append(checks, f.Check)
	}
	want := []string{"machine", "GresTypes", "node", "gres.conf", "whole GPUs", "ConstrainDevices", "accounting", "PrologFlags", "Prolog", "Epilog",
		"PrologEpilogTimeout", "job_submit", "plugstack", "open ways", "open ways", "open ways"}
	if diff := cmp.Diff(want, checks); diff != "" {
		t.Error(diff)
	}
}

const wantLine = "slurm.conf: NodeName=n1 … Gres=vgpu:20,gpumem:287542,gpucores:200"

var faultySites = map[string]struct {
	file, old, new string
	want           []string
}{
	"no GresTypes": {"slurm.conf", "GresTypes=vgpu,gpumem,gpucores", "GresTypes=gpu,vgpu",
		[]string{"GresTypes: DIR/slurm.conf: GresTypes lacks gpumem, gpucores -> slurm.conf: GresTypes=gpu,vgpu,gpumem,gpucores"}},
	"whole nodes": {"slurm.conf", "GresTypes=", "SelectType=select/linear\nGresTypes=",
		[]string{"SelectType: DIR/slurm.conf: SelectType is select/linear, under which slices do not share a node -> slurm.conf: SelectType=select/cons_tres"}},
	"suffix": {"slurm.conf", "gpumem:287542", "gpumem:280G",
		[]string{"node: DIR/slurm.conf:4: Gres=gpumem:280G: the unit of gpumem is MiB already, and Slurm multiplies by 1024 for each step of a suffix; write the number of MiB -> " + wantLine}},
	"one without a count": {"slurm.conf", "vgpu:20", "vgpu",
		[]string{"node: DIR/slurm.conf:4: Gres=vgpu:1: this node has 20 (2 GPUs, slices_per_gpu 10, mem_overcommit 1) -> " + wantLine}},
	"GiB": {"slurm.conf", "gpumem:287542", "gpumem:280",
		[]string{"node: DIR/slurm.conf:4: Gres=gpumem:280: that looks like GiB; the unit of gpumem is MiB, and this node has 287542 -> " + wantLine}},
	"one GPU's memory": {"slurm.conf", "gpumem:287542", "gpumem:143771",
		[]string{"node: DIR/slurm.conf:4: Gres=gpumem:143771: this node has 287542 (2 GPUs, slices_per_gpu 10, mem_overcommit 1) -> " + wantLine}},
	"no gpucores": {"slurm.conf", ",gpucores:200", "",
		[]string{"node: DIR/slurm.conf:4: Gres= of node n1 has no gpucores -> " + wantLine}},
	"no node": {"slurm.conf", "n[1-2]", "n[2-3]",
		[]string{"node: DIR/slurm.conf: no NodeName= line is about node n1 -> " + wantLine}},
	"a second line": {"slurm.conf", "gpucores:200", "gpucores:200\nNodeName=n1 Gres=vgpu:20,gpumem:287542,gpucores:200", []string{"node: DIR/slurm.conf:5: node n1 has a line at DIR/slurm.conf:4 already, and no daemon of Slurm starts with both -> one line: NodeName=n1 … Gres=vgpu:20,gpumem:287542,gpucores:200"}},
	"no line in gres.conf": {"gres.conf", "Name=vgpu", "Name=gpu",
		[]string{"gres.conf: DIR/gres.conf: no line with Name=vgpu is about node n1 -> DIR/gres.conf: NodeName=n1 Name=vgpu Count=20 Flags=CountOnly"}},
	"not CountOnly": {"gres.conf", "Count=287542 Flags=CountOnly", "Count=287542",
		[]string{"gres.conf: DIR/gres.conf:2: Name=gpumem lacks Flags=CountOnly, so every daemon looks for a plugin gres_gpumem.so -> DIR/gres.conf: NodeName=n1 Name=gpumem Count=287542 Flags=CountOnly"}},
	"twice": {"gres.conf", "Name=gpucores Count=200 Flags=CountOnly", "Name=gpucores Count=200 Flags=CountOnly\nNodeName=n1 Name=gpucores Count=200 Flags=CountOnly",
		[]string{"gres.conf: DIR/gres.conf:3 and DIR/gres.conf:4: two lines with Name=gpucores are about node n1; Slurm adds them up -> keep one of them"}},
	"whole GPUs of two types": {"slurm.conf", "Gres=vgpu:20", "Gres=gpu:tesla:2,gpu:kepler:2,mps:400,vgpu:20",
		[]string{"whole GPUs: DIR/slurm.conf:4: node n1 offers gres/gpu and gres/mps as well; Slurm does not know that these are the same GPUs as vgpu's and gives each out twice -> slurm.conf: take gpu, shard and mps out of this node's Gres=, or say in config.yaml whose GPUs they are: shards, whole_gpus or slurm_gpus"}},
	"whole GPUs as well": {"slurm.conf", "Gres=vgpu:20", "Gres=gpu:h200:2,vgpu:20",
		[]string{"whole GPUs: DIR/slurm.conf:4: node n1 offers gres/gpu as well; Slurm does not know that these are the same GPUs as vgpu's and gives each out twice -> slurm.conf: take gpu, shard and mps out of this node's Gres=, or say in config.yaml whose GPUs they are: shards, whole_gpus or slurm_gpus"}},
	"devices withheld": {"gres.conf", "Name=gpucores", "NodeName=n1 Name=gpu File=/dev/nvidia[0-1]\nName=gpucores",
		[]string{"ConstrainDevices: DIR/cgroup.conf:1 and DIR/gres.conf:3: a job with vgpu but without gres/gpu may open none of these devices -> gres.conf: take the devices of gres/gpu away on this node, or cgroup.conf: ConstrainDevices=no"}},
	"devices of another node": {"gres.conf", "Name=gpucores", "NodeName=n2 Name=gpu File=/dev/nvidia[0-1]\nName=gpucores", []string{}},
	"no gpuutil": {"slurm.conf", ",gres/gpuutil", "",
		[]string{"accounting: DIR/slurm.conf: AccountingStorageTRES lacks gres/gpuutil: gres/gpumem without gres/gpuutil makes Slurm 23.02 and later corrupt memory where AutoDetect=nvml is used -> slurm.conf: AccountingStorageTRES=gres/vgpu,gres/gpumem,gres/gpucores,gres/gpuutil"}},
	"gpu brings gpuutil": {"slurm.conf", ",gres/gpuutil", ",gres/gpu", []string{}},
	"no slurmdbd": {"slurm.conf", "accounting_storage/slurmdbd", "accounting_storage/none",
		[]string{"accounting: DIR/slurm.conf: without slurmdbd sacct shows neither the GRES nor the usage of jobs -> slurm.conf: AccountingStorageType=accounting_storage/slurmdbd"}},
	"no Contain": {"slurm.conf", "Alloc,Contain", "Alloc,NoHold",
		[]string{"PrologFlags: DIR/slurm.conf: PrologFlags lacks Contain -> slurm.conf: PrologFlags=Alloc,Contain",
			"PrologFlags: DIR/slurm.conf: PrologFlags has NoHold, which lets steps start before the prolog is done -> slurm.conf: PrologFlags=Alloc,Contain"}},
	"containers": {"slurm.conf", "ClusterName=c", "ClusterName=c\nJobContainerType=job_container/tmpfs", []string{}},
	"unknown containers": {"slurm.conf", "ClusterName=c", "ClusterName=c\nNamespaceType=namespace/linux",
		[]string{"NamespaceType: DIR/slurm.conf:2: with NamespaceType=namespace/linux only a job's tasks are isolated: its task epilogs, and the files of --input and --output, reach every GPU of the node -> slurm.conf: NamespaceType=namespace/tmpfs, or none"}},
	"no prolog": {"slurm.conf", "Prolog=", "#Prolog=",
		[]string{"Prolog: DIR/slurm.conf: there is no Prolog= -> slurm.conf: Prolog=/usr/lib/slurm-vgpu/vgpu-prolog"}},
	"another epilog": {"epilog.sh", "vgpu-epilog", "x",
		[]string{"Epilog: DIR/slurm.conf:7: Epilog=DIR/epilog.sh does not run vgpu-epilog -> slurm.conf: Epilog=/usr/lib/slurm-vgpu/vgpu-epilog, or call /usr/lib/slurm-vgpu/vgpu-epilog from the script and return its exit code"}},
	"short timeout": {"slurm.conf", "ClusterName=c", "ClusterName=c\nPrologEpilogTimeout=30",
		[]string{"PrologEpilogTimeout: DIR/slurm.conf:2: PrologEpilogTimeout=30 ends the prolog before slurm.controller_timeout (1m0s) is over, and drains the node -> slurm.conf: PrologEpilogTimeout=90, or a shorter slurm.controller_timeout in config.yaml"}},
	"short times of their own": {"slurm.conf", "ClusterName=c", "ClusterName=c\nPrologTimeout=60\nEpilogTimeout=30",
		[]string{"PrologTimeout: DIR/slurm.conf:2: PrologTimeout=60 ends the prolog before slurm.controller_timeout (1m0s) is over, and drains the node -> slurm.conf: PrologTimeout=90, or a shorter slurm.controller_timeout in config.yaml",
			"EpilogTimeout: DIR/slurm.conf:3: EpilogTimeout=30 ends the epilog before it has waited for the node's lock (30s), and drains the node -> slurm.conf: EpilogTimeout=60"}},
	"times that suffice": {"slurm.conf", "ClusterName=c", "ClusterName=c\nPrologTimeout=61\nEpilogTimeout=31", []string{}},
	"no lua": {"slurm.conf", "JobSubmitPlugins=lua", "JobSubmitPlugins=throttle",
		[]string{"job_submit: DIR/slurm.conf: JobSubmitPlugins lacks lua: --vgpu-mem and --vgpu-cores become no GRES -> slurm.conf: JobSubmitPlugins=throttle,lua"}},
	"a site's own script": {"job_submit.lua", "vgpu = dofile(\"/usr/share/slurm-vgpu/vgpu.lua\")", "x = 1",
		[]string{"job_submit: DIR/job_submit.lua does not use slurm-vgpu -> add the lines of /usr/share/slurm-vgpu/job_submit.lua to it"}},
	"no plugin": {"plugstack.conf.d/vgpu.conf", "required", "# required",
		[]string{"plugstack: DIR/plugstack.conf has no line with spank_vgpu.so -> DIR/plugstack.conf: required spank_vgpu.so"}},
	"Pyxis after it": {"plugstack.conf", "*.conf", "*.conf\nrequired /usr/local/lib/slurm/spank_pyxis.so",
		[]string{"plugstack: DIR/plugstack.conf:2: Pyxis comes after spank_vgpu.so, which cannot see when it moves a task into a container of another job -> put it before DIR/plugstack.conf.d/vgpu.conf:2"}},
	"Pyxis before it": {"plugstack.conf", "include", "optional spank_pyxis.so\ninclude", []string{}},
	"optional": {"plugstack.conf.d/vgpu.conf", "required", "optional",
		[]string{"plugstack: DIR/plugstack.conf.d/vgpu.conf:2: the plugin is optional: where it cannot be loaded, jobs run without a limit -> DIR/plugstack.conf: required spank_vgpu.so"}},
	"another run_dir": {"plugstack.conf.d/vgpu.conf", "spank_vgpu.so", "spank_vgpu.so run_dir=/run/x",
		[]string{"plugstack: DIR/plugstack.conf.d/vgpu.conf:2: the plugin looks for grants in /run/x, the prolog leaves them in /run/slurm-vgpu (run_dir of config.yaml) -> DIR/plugstack.conf.d/vgpu.conf:2: required DIR/spank_vgpu.so"}},
	"not installed": {"plugstack.conf.d/vgpu.conf", "spank_vgpu.so", "none/spank_vgpu.so",
		[]string{"plugstack: DIR/plugstack.conf.d/vgpu.conf:2: stat DIR/none/spank_vgpu.so: no such file or directory -> install spank_vgpu.so there"}},
	"no plugin at all": {"spank_vgpu.so", "ELF", "elf",
		[]string{"plugstack: read version of DIR/spank_vgpu.so: bad magic number '[127 101 108 102]' in record at byte 0x0 -> install it again"}},
}

func TestFindings(t *testing.T) {
	for name, tc := range faultySites {
		t.Run(name, func(t *testing.T) {
			site, dir := goodSite(t)
			edit(t, filepath.Join(dir, tc.file), tc.old, tc.new)
			got := findings(t, site, dir)
			for i := range got { // where a plugin is installed on the machine of the test does not matter
				got[i] = strings.ReplaceAll(got[i], PluginPath(), "spank_vgpu.so")
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDevicesThatNobodyWithholdsMayHaveFiles(t *testing.T) {
	for name, change := range map[string]func(dir string){
		"not constrained":     func(dir string) { edit(t, filepath.Join(dir, "cgroup.conf"), "yes", "no") },
		"without task/cgroup": func(dir string) { edit(t, filepath.Join(dir, "slurm.conf"), ",task/cgroup", "") },
		"no cgroup.conf": func(dir string) {
			if err := os.Remove(filepath.Join(dir, "cgroup.conf")); err != nil {
				t.Fatal(err)
			}
		},
		"found by nobody": func(dir string) { edit(t, filepath.Join(dir, "gres.conf"), "File=/dev/nvidia0", "AutoDetect=off") },
	} {
		site, dir := goodSite(t)
		edit(t, filepath.Join(dir, "gres.conf"), "Name=gpucores", "NodeName=n1 Name=gpu File=/dev/nvidia0\nName=gpucores")
		if got := findings(t, site, dir); len(got) != 1 {
			t.Errorf("%s, before: %v", name, got)
		}
		change(dir)
		if diff := cmp.Diff([]string{}, findings(t, site, dir)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestTimesAreFineOnlyTogether(t *testing.T) {
	for text, fine := range map[string]bool{
		"ClusterName=c": true,
		"PrologEpilogTimeout=61\nPrologTimeout=61\nEpilogTimeout=31": true,
		"PrologEpilogTimeout=60":                                     false,
		"PrologTimeout=60":                                           false,
		"EpilogTimeout=30":                                           false,
		"PrologEpilogTimeout=0":                                      true, // none
		"PrologEpilogTimeout=1":                                      false,
		"PrologEpilogTimeout=65534":                                  true, // likewise
	} {
		site, dir := goodSite(t)
		edit(t, site.SlurmConf, "ClusterName=c", text)
		all, err := site.Check()
		said := false
		for _, f := range all {
			said = said || f.OK && f.Check == "PrologEpilogTimeout"
		}
		if err != nil || said != fine || len(findings(t, site, dir)) == 0 != fine {
			t.Errorf("%s: said to be fine: %v, %v, %v", text, said, findings(t, site, dir), err)
		}
	}
}

func TestAFileThatCannotBeReadIsNotSaidToBeFine(t *testing.T) {
	for file, check := range map[string]string{"gres.conf": "gres.conf", "cgroup.conf": "ConstrainDevices", "plugstack.conf": "plugstack"} {
		site, dir := goodSite(t)
		path := filepath.Join(dir, file)
		if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o755)); err != nil {
			t.Fatal(err)
		}
		if got := findings(t, site, dir); len(got) != 1 || !strings.HasPrefix(got[0], check+": ") || !strings.HasSuffix(got[0], "is a directory -> make it readable") {
			t.Errorf("%s: %q", file, got)
		}
		all, err := site.Check()
		for _, f := range all {
			if f.OK && (f.Check == check || f.Check == "ConstrainDevices" && file == "gres.conf") {
				t.Errorf("%s: %s is said to be fine: %s", file, f.Check, f.Says)
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func TestOnlyTheControllerNeedsTheScript(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	short, _, _ := strings.Cut(host, ".")
	missing := []string{"job_submit: open DIR/job_submit.lua: no such file or directory -> copy job_submit.lua from /usr/share/slurm-vgpu to DIR/job_submit.lua"}
	for controllers, want := range map[string][]string{
		"SlurmctldHost=elsewhere": {},
		"SlurmctldHost=" + host:   missing,
		"SlurmctldHost=elsewhere\nSlurmctldHost=" + short + "(10.0.0.1)": missing,
		"ControlMachine=" + short:     missing,
		"SlurmctldHost=" + host + "x": {},
		"DbdHost=" + host:             {},
	} {
		site, dir := goodSite(t)
		edit(t, site.SlurmConf, "SlurmctldHost=elsewhere", controllers)
		if err := os.Remove(filepath.Join(dir, "job_submit.lua")); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, findings(t, site, dir)); diff != "" {
			t.Errorf("%s: %s", controllers, diff)
		}
	}
}

func TestNotExecutableProlog(t *testing.T) {
	site, dir := goodSite(t)
	if err := os.Chmod(filepath.Join(dir, "vgpu-prolog"), 0o644); err != nil {
		t.Fatal(err)
	}
	want := []string{"Prolog: DIR/slurm.conf:6: Prolog=DIR/vgpu-prolog is not executable; slurmd would drain the node -> chmod 755 DIR/vgpu-prolog"}
	if diff := cmp.Diff(want, findings(t, site, dir)); diff != "" {
		t.Error(diff)
	}
}

func TestPluginThatOthersMayChange(t *testing.T) {
	for says, spoil := range map[string]func(plugin string) error{
		fmt.Sprintf("belongs to uid %d with mode 0775", os.Getuid()): func(plugin string) error { return os.Chmod(plugin, 0o775) },
		fmt.Sprintf("belongs to uid %d with mode 0757", os.Getuid()): func(plugin string) error { return os.Chmod(plugin, 0o757) },
		"belongs to uid 1 with mode 0755":                            func(plugin string) error { return os.Chown(plugin, 1, 0) },
	} {
		site, dir := goodSite(t)
		if err := spoil(filepath.Join(dir, "spank_vgpu.so")); errors.Is(err, fs.ErrPermission) {
			continue // only root can give a file away
		} else if err != nil {
			t.Fatal(err)
		}
		want := []string{"plugstack: DIR/spank_vgpu.so " + says + "; Slurm loads only what root alone may write -> chown root:root DIR/spank_vgpu.so && chmod 755 DIR/spank_vgpu.so"}
		if diff := cmp.Diff(want, findings(t, site, dir)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestPluginOfAnotherSlurm(t *testing.T) {
	site, dir := goodSite(t)
	for version, want := range map[string][]string{
		"22.05.1": {},
		"":        {},
		"23.11.4": {"plugstack: DIR/spank_vgpu.so was built for Slurm 22.05.8 and is not loaded by 23.11.4: major and minor must be the same -> rebuild or install spank_vgpu.so for Slurm 23.11.4"},
	} {
		site.Version = version
		if diff := cmp.Diff(want, findings(t, site, dir)); diff != "" {
			t.Errorf("%q: %s", version, diff)
		}
	}
}

func TestWithoutInventoryCountsAreNotChecked(t *testing.T) {
	site, dir := goodSite(t)
	site.Inventory = nil
	edit(t, site.SlurmConf, "vgpu:20,gpumem:287542", "vgpu:7,gpumem:1")
	if diff := cmp.Diff([]string{}, findings(t, site, dir)); diff != "" {
		t.Error(diff)
	}
}

func TestNoSlurmConf(t *testing.T) {
	if _, err := (Site{SlurmConf: "/does/not/exist"}).Check(); !errors.Is(err, ErrNoSlurmConf) {
		t.Errorf("got %v", err)
	}
}

func TestCountsOf(t *testing.T) {
	inv := twoH200
	inv.GPUs = append([]device.GPU(nil), inv.GPUs...)
	inv.GPUs[1].Lost = "gone"
	if got, want := CountsOf(inv, 4, 1.5).String(), "vgpu:4,gpumem:215656,gpucores:100"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	inv.GPUs[1].FailedUnixS = 7 // it was there when Slurm's files were written, and comes back
	if got, want := CountsOf(inv, 4, 1.5).String(), "vgpu:8,gpumem:431312,gpucores:200"; got != want {
		t.Errorf("with one that has failed since: got %s, want %s", got, want)
	}
}

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]string{"slurm-wlm 22.05.8": "22.05.8", "slurm 23.11.10-1": "23.11.10", "slurm 26.05.0rc1": "26.05.0", "": "", "1.2.3": ""} {
		if got := ParseVersion(text); got != want {
			t.Errorf("ParseVersion(%q) = %q, want %q", text, got, want)
		}
	}
}
