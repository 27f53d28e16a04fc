// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
)

// checks are the findings of a site, each as "check ok|warning|bad: says".
func checks(t *testing.T, site Site, dir string) []string {
	t.Helper()
	all, err := site.Check()
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, f := range all {
		word := " bad: "
		if f.OK {
			word = " ok: "
		} else if f.Warning {
			word = " warning: "
		}
		list = append(list, strings.ReplaceAll(f.Check+word+f.Says, dir, "DIR"))
	}
	return list
}

// controller makes the machine of the test the controller of a good site, which has a table of its nodes; itself it is none of them.
func controller(t *testing.T) (Site, string) {
	t.Helper()
	site, dir := goodSite(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := filepath.Abs("../../gres")
	if err != nil {
		t.Fatal(err)
	}
	edit(t, site.SlurmConf, "elsewhere", host)
	write(t, filepath.Join(dir, "job_submit.lua"), `local vgpu = dofile("`+scripts+`/vgpu.lua")
vgpu.cluster_file = "`+dir+`/cluster.lua"
vgpu.whole_gpus = "refuse"
`)
	edit(t, site.SlurmConf, "GresTypes=", "GresTypes=gpu,") // for "refuse"
	write(t, filepath.Join(dir, "cluster.lua"), `return { nodes = { { names = "n[1-2]", gpus = 2, mem_mib = 143771, type = "h200" } } }`)
	write(t, filepath.Join(dir, "scontrol"), "#!/bin/sh\n[ \"$*\" = 'show hostnames n[1-2]' ] && echo n1 && echo n2\n")
	site.Node, site.Inventory = "head", nil
	site.Config.Slurm.Scontrol = filepath.Join(dir, "scontrol")
	return site, dir
}

func TestAControllerIsNoNode(t *testing.T) {
	if !slices.ContainsFunc(interpreters, exists) {
		t.Skip("no Lua is installed")
	}
	site, dir := controller(t)
	got := checks(t, site, dir)
	if got[0] != "machine ok: head is a controller and has no slices: the checks of a node are left out" ||
		!slices.Contains(got, "cluster.lua ok: DIR/cluster.lua agrees with DIR/slurm.conf") {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	for _, finding := range got {
		if !strings.Contains(finding, " ok: ") || strings.HasPrefix(finding, "node") || strings.HasPrefix(finding, "Prolog ") {
			t.Errorf("a controller: %s", finding)
		}
	}
	site.IsNode = true // a machine may be both
	if got := checks(t, site, dir); !slices.ContainsFunc(got, func(f string) bool { return strings.HasPrefix(f, "node bad: ") }) {
		t.Errorf("as a node: %s", strings.Join(got, "\n"))
	}
	site.IsNode = false
	edit(t, site.SlurmConf, "SlurmctldHost=", "SlurmctldHost=not-")
	if got := checks(t, site, dir); !strings.HasPrefix(got[0], "machine ok: head has neither GPUs nor a NodeName= line: as a login node") ||
		slices.ContainsFunc(got, func(f string) bool { return strings.HasPrefix(f, "cluster.lua") }) {
		t.Errorf("a login node: %s", strings.Join(got, "\n"))
	}
}

func TestTheControllersTableIsHeldAgainstTheNodes(t *testing.T) {
	if !slices.ContainsFunc(interpreters, exists) {
		t.Skip("no Lua is installed")
	}
	for name, tc := range map[string]struct{ table, want string }{
		"broken":             {"return { nodes = { gpus", "cluster.lua bad: DIR/cluster.lua: it is no table of nodes: cluster.lua:1: "},
		"empty":              {"return {}", "cluster.lua bad: DIR/cluster.lua: it is no table of nodes: it returns no table with nodes"},
		"a program":          {"os.exit(0)", "cluster.lua bad: DIR/cluster.lua: it is no table of nodes: "},
		"more GPUs":          {`return { nodes = { { names = "n[1-2]", gpus = 8, mem_mib = 143771, type = "h200" } } }`, "cluster.lua bad: DIR/cluster.lua: n1 has 8 GPUs, which is gpucores:800; DIR/slurm.conf:4 has gpucores:200"},
		"more memory":        {`return { nodes = { { names = "n[1-2]", gpus = 2, mem_mib = 200000, type = "h200" } } }`, "cluster.lua bad: DIR/cluster.lua gives each GPU of n1 200000 MiB, DIR/slurm.conf:4 gives all of them gpumem:287542"},
		"other slices":       {`return { slices_per_gpu = 4, nodes = { { names = "n[1-2]", gpus = 2, mem_mib = 143771, type = "h200" } } }`, "cluster.lua bad: DIR/cluster.lua: 4 slices on each of the 2 GPUs of n1, DIR/slurm.conf:4 has vgpu:20"},
		"a node less":        {`return { nodes = { { names = "n1", gpus = 2, mem_mib = 143771, type = "h200" } } }`, "cluster.lua warning: DIR/cluster.lua has no row for n2, which has slices by DIR/slurm.conf:4"},
		"a larger node less": {`return { nodes = { { names = "n1", gpus = 1, mem_mib = 143771, type = "h200" } } }`, "cluster.lua bad: DIR/cluster.lua: n1 has 1 GPUs, which is gpucores:100; DIR/slurm.conf:4 has gpucores:200 cluster.lua bad: DIR/cluster.lua has no row for n2, which is larger than all others"},
		"a node more":        {`return { nodes = { { names = "n[1-2]", gpus = 2, mem_mib = 143771, type = "h200" }, { names = "n9", gpus = 2, mem_mib = 143771, type = "h200" } } }`, "cluster.lua bad: DIR/cluster.lua has a row for n9, which is not in DIR/slurm.conf"},
		"shards":             {`return { nodes = { { names = "n[1-2]", gpus = 2, mem_mib = 143771, type = "h200", shards = 143771 } } }`, "cluster.lua bad: DIR/cluster.lua has shards for n1, which offers no gres/shard by DIR/slurm.conf:4: jobs with slices never start there"},
		"shards of some":     {`return { nodes = { { names = "n1", gpus = 2, mem_mib = 143771, type = "h200" }, { names = "n2", gpus = 2, mem_mib = 143771, type = "h200", shards = 143771 } } }`, "cluster.lua bad: DIR/cluster.lua has shards for n2, which offers no gres/shard by DIR/slurm.conf:4: jobs with slices never start there cluster.lua warning: DIR/cluster.lua has nodes with shards and nodes without: slices are sent to those with alone"},
		"types of a node":    {`return { nodes = { { names = "n[1-2]", gpus = 1, mem_mib = 143771, type = "h200" }, { names = "n[1-2]", gpus = 1, mem_mib = 81920, type = "a100" } } }`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			site, dir := controller(t)
			write(t, filepath.Join(dir, "cluster.lua"), tc.table)
			got := slices.DeleteFunc(checks(t, site, dir), func(f string) bool { return !strings.HasPrefix(f, "cluster.lua") })
			if tc.want == "" && (len(got) != 1 || !strings.Contains(got[0], " ok: ")) || !strings.HasPrefix(strings.Join(got, " "), tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	site, dir := controller(t)
	edit(t, site.SlurmConf, "Gres=", "Gres=gpu:h200:2,shard:287542,")
	if got := checks(t, site, dir); !slices.ContainsFunc(got, func(f string) bool {
		return strings.HasPrefix(f, "cluster.lua bad: DIR/cluster.lua has no shards for n1, which offers gres/shard by DIR/slurm.conf:4: jobs get none, and vgpu-prolog refuses their slices")
	}) {
		t.Errorf("a node with shards, and a table without: %q", got)
	}
	site, dir = controller(t)
	edit(t, filepath.Join(dir, "gres.conf"), "Count=20", "Count=10")
	if got := checks(t, site, dir); !slices.Contains(got, "gres.conf bad: DIR/gres.conf:1: vgpu counts 10 of node n1, DIR/slurm.conf:4 says 20") {
		t.Errorf("gres.conf: %q", got)
	}
	if err := os.Chmod(filepath.Join(dir, "cluster.lua"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := checks(t, site, dir); !slices.Contains(got, "cluster.lua bad: DIR/cluster.lua has mode 0600: slurmctld must be able to read it") {
		t.Errorf("mode 600: %q", got)
	}
	if err := os.Chmod(filepath.Join(dir, "cluster.lua"), 0o666); err != nil {
		t.Fatal(err)
	}
	if got := checks(t, site, dir); !slices.ContainsFunc(got, func(f string) bool { return strings.HasPrefix(f, "cluster.lua bad: it is not loaded: ") }) {
		t.Errorf("mode 666: %q", got)
	}
	if err := os.Remove(filepath.Join(dir, "cluster.lua")); err != nil {
		t.Fatal(err)
	}
	if got := checks(t, site, dir); !slices.Contains(got, "cluster.lua warning: without the table jobs must name their memory, and what no node can hold waits for ever: stat DIR/cluster.lua: no such file or directory") {
		t.Errorf("absent: %q", got)
	}
}

// Where the table lets others have priority latency than the configuration does, jobs fail on the node, or are refused in vain.
func TestWhoMayGoFirstIsSaidTwice(t *testing.T) {
	if !slices.ContainsFunc(interpreters, exists) {
		t.Skip("no Lua is installed")
	}
	for latency, warns := range map[string]string{
		"": "", `latency = { qos = { "rt", "two" }, partitions = {} },`: "",
		"latency = { qos = {}, partitions = {} },": "nobody", `latency = { qos = {}, partitions = { "*" } },`: "partitions *",
	} {
		site, dir := controller(t)
		site.Config.LatencyQOS = []string{"rt", "two"}
		write(t, filepath.Join(dir, "cluster.lua"), `return { `+latency+` nodes = { { names = "n[1-2]", gpus = 2, mem_mib = 143771, type = "h200" } } }`)
		want := "cluster.lua warning: --vgpu-priority=latency is for " + warns + " by DIR/cluster.lua, and for QOS rt,two by config.yaml"
		if got := checks(t, site, dir); slices.Contains(got, want) != (warns != "") {
			t.Errorf("%s: %q, want %q", latency, got, want)
		}
		site.Config.LatencyQOS = nil
		if got := checks(t, site, dir); latency == "latency = { qos = {}, partitions = {} }," && slices.ContainsFunc(got, func(f string) bool { return strings.Contains(f, "latency") }) {
			t.Errorf("nobody, and nobody: %q", got)
		}
	}
}

// A site without gres/gpu says to those who type --gpus=1 what to write.
func TestWholeGPUsAreRefusedWithWords(t *testing.T) {
	if !slices.ContainsFunc(interpreters, exists) {
		t.Skip("no Lua is installed")
	}
	const bare = "job_submit warning: no node has gres/gpu, and a user who types --gpus=1 gets Slurm's \"Invalid generic resource (gres) specification\" without a hint at the option to write"
	const table, types = "DIR/cluster.lua: gres_gpu = false", "slurm.conf: GresTypes=gpu,vgpu,gpumem,gpucores"
	for name, tc := range map[string]struct {
		script, types, table string
		want                 []string
	}{
		"the script refuses":               {`vgpu.whole_gpus = "refuse"`, "gpu,", "", nil},
		"the script decides":               {"vgpu.whole_gpus = function(job) return true end", "gpu,", "", nil},
		"the table says it":                {"", "gpu,", "gres_gpu = false,", nil},
		"the table says it, as shipped":    {"vgpu.whole_gpus = nil -- true: some", "gpu,", "gres_gpu = false,", nil},
		"nobody says it":                   {"", "gpu,", "", []string{bare + " -> " + table}},
		"nobody says it, and no type":      {"", "", "", []string{bare + " -> " + table + ", and " + types}},
		"the script refuses, and no type":  {`vgpu.whole_gpus = "refuse"`, "", "", []string{bare + ": GresTypes lacks gpu, so that Slurm does not call job_submit.lua -> " + types}},
		"the table says it, and no type":   {"", "", "gres_gpu = false,", []string{bare + ": GresTypes lacks gpu, so that Slurm does not call job_submit.lua -> " + types}},
		"the script overrules the table":   {"vgpu.whole_gpus = false", "gpu,", "gres_gpu = false,", []string{bare + ` -> DIR/job_submit.lua: vgpu.whole_gpus = "refuse"`}},
		"the table says something else":    {"", "gpu,", "gres_gpu = true,", []string{"cluster.lua bad: DIR/cluster.lua: it is no table of nodes: gres_gpu is not false -> paste what `vgpu-gres cluster.lua` prints on a node of each kind"}},
		"the table says it, and some have": {"", "gpu,", "gres_gpu = false, --some", []string{"cluster.lua bad: DIR/cluster.lua says that no node has gres/gpu, and DIR/slurm.conf:4 has nodes with some: jobs that ask for these are refused -> take gres_gpu out of it"}},
	} {
		t.Run(name, func(t *testing.T) {
			site, dir := controller(t)
			edit(t, site.SlurmConf, "GresTypes=gpu,", "GresTypes="+tc.types)
			edit(t, filepath.Join(dir, "job_submit.lua"), `vgpu.whole_gpus = "refuse"`, tc.script)
			edit(t, filepath.Join(dir, "cluster.lua"), "return {", "return { "+tc.table+"\n")
			if strings.Contains(tc.table, "--some") {
				edit(t, site.SlurmConf, "Gres=", "Gres=gpu:2,")
			}
			all, err := site.Check()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range all {
				if word := map[bool]string{true: " warning: ", false: " bad: "}[f.Warning]; !f.OK && (f.Check == "job_submit" || f.Check == "cluster.lua") {
					got = append(got, strings.ReplaceAll(f.Check+word+f.Says+" -> "+f.Remedy, dir, "DIR"))
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got  %q,\nwant %q", got, tc.want)
			}
		})
	}
}

func TestTheFolderOfTheConfiguration(t *testing.T) {
	for mode, want := range map[os.FileMode]string{
		0o755: "", 0o777: "others than root can replace config.yaml", 0o775: "others than root can replace config.yaml",
		0o700: "vgpuctl of a user and slurmctld cannot read what is in it", 0o750: "vgpuctl of a user and slurmctld cannot read what is in it",
	} {
		site, dir := goodSite(t)
		site.ConfigDir = filepath.Join(dir, "etc")
		if err := os.Mkdir(site.ConfigDir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(site.ConfigDir, mode); err != nil {
			t.Fatal(err)
		}
		got := findings(t, site, dir)
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0], want)) {
			t.Errorf("%#o: %q", mode, got)
		}
	}
}

func TestOpenWays(t *testing.T) {
	cfg := config.Default()
	if got := OpenWays(cfg); len(got) != 3 || !got[0].Warning {
		t.Errorf("the defaults: %+v", got)
	}
	cfg.DeviceFiles, cfg.UserNamespaces = config.FilesClosed, config.UserDeny
	if got := OpenWays(cfg); len(got) != 1 || !got[0].OK {
		t.Errorf("all closed: %+v", got)
	}
	cfg.Isolation, cfg.OtherAPIs, cfg.OnLimitFailure, cfg.WithoutSlice = config.IsolationPreload, config.OtherOpen, config.LimitOpen, config.WithoutLeave
	if got := OpenWays(cfg); len(got) != 4 {
		t.Errorf("open: %+v", got)
	}
}

func TestASlurmThatDoesNotAnswer(t *testing.T) {
	site, dir := goodSite(t)
	scontrol := filepath.Join(dir, "scontrol")
	write(t, scontrol, "#!/bin/sh\necho 'slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)' >&2\nexit 1\n")
	site.Running = AskSlurm(t.Context(), scontrol, site.SlurmConf, "n1")
	is := func(word string) func(string) bool {
		return func(f string) bool {
			return strings.HasPrefix(f, "slurmctld "+word+": it does not answer") && strings.Contains(f, "connect failure")
		}
	}
	if got := checks(t, site, dir); !slices.ContainsFunc(got, is("warning")) {
		t.Errorf("at installation: %q", got)
	}
	site.Live = true
	if got := checks(t, site, dir); !slices.ContainsFunc(got, is("bad")) {
		t.Errorf("later: %q", got)
	}
	if err := AskAccounting(context.Background(), scontrol, site.SlurmConf); err == nil {
		t.Error("a program that fails is taken for slurmdbd's answer")
	}
}

// Counts that nobody could compare with the node's GPUs are not said to be right.
func TestCountsOfUnknownGPUsAreNoOk(t *testing.T) {
	site, dir := goodSite(t)
	site.Inventory = nil
	for _, finding := range checks(t, site, dir) {
		if strings.HasPrefix(finding, "node ok") || strings.HasPrefix(finding, "gres.conf ok") {
			t.Error(finding)
		}
	}
}
