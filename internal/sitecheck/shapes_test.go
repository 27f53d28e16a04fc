// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// nothing is what is wrong with a good site.
const nothing = ""

// shapes are ways to write a site's files that public repositories have, each made into a small file of the good site's
// content. old is replaced by new in a file of the site, and more files come along; wants is how the one finding begins.
var shapes = []struct {
	name          string
	file, old, to string
	more          map[string]string
	version       string
	wants         string
}{
	{"NVIDIA/deepops: a prolog that goes through its folder", "slurm.conf", "Prolog=DIR/vgpu-prolog", "Prolog=DIR/prolog.sh", map[string]string{
		"prolog.sh":           "#!/usr/bin/env bash\nset -e\nfor part in DIR/prolog.d/*; do\n  if [ -x \"$part\" ]; then \"$part\" || exit $?; fi\ndone\n",
		"prolog.d/10-gpus":    "#!/bin/sh\nexit 0\n",
		"prolog.d/50-vgpu.sh": "#!/bin/sh\nexec /usr/lib/slurm-vgpu/vgpu-prolog\n",
	}, "", nothing},
	{"NVIDIA/deepops: one script runs the parts of the folder that it is given", "slurm.conf", "Prolog=DIR/vgpu-prolog", "Prolog=DIR/prolog.sh", map[string]string{
		"prolog.sh":             "#!/bin/bash\nexport PATH=/usr/bin:/bin\nDIR/shared/run-parts.sh DIR/prolog.d\n",
		"shared/run-parts.sh":   "#!/bin/bash\ndir=\"$1\"\nwhile read -r part; do\n  \"$part\"\ndone < <(find \"${dir}\" -executable -type f | sort)\n",
		"prolog.d/90-vgpu-part": "#!/bin/sh\n/usr/lib/slurm-vgpu/vgpu-prolog\n",
	}, "", nothing},
	{"Azure/az-hop: parts by a variable and a pattern", "slurm.conf", "Prolog=DIR/vgpu-prolog", "Prolog=DIR/prolog.sh", map[string]string{
		"prolog.sh":                "#!/bin/bash\nreadonly PARTS=DIR/scripts/prolog.d\nfor script in ${PARTS}/*.sh; do\n  [ -f \"$script\" ] && \"$script\"\ndone\n",
		"scripts/prolog.d/vgpu.sh": "#!/bin/bash\n/usr/lib/slurm-vgpu/vgpu-prolog || exit $?\n",
	}, "", nothing},
	{"oracle-quickstart/oci-hpc: parts beside the script, by a shell", "slurm.conf", "Prolog=DIR/vgpu-prolog", "Prolog=DIR/prolog.sh", map[string]string{
		"prolog.sh":        "#!/bin/bash\nHERE=\"$( cd \"$( dirname \"${BASH_SOURCE[0]}\" )\" && pwd )\"\nfor f in \"$HERE\"/prolog.d/*.sh; do\n  bash \"$f\"\ndone\n",
		"prolog.d/vgpu.sh": "#!/bin/bash\n/usr/lib/slurm-vgpu/vgpu-prolog\n",
	}, "", nothing},
	{"GoogleCloudPlatform/slurm-gcp: one program for prolog and epilog, by its own name", "slurm.conf", "Prolog=DIR/vgpu-prolog", "Prolog=DIR/prolog", map[string]string{
		"prolog":                  "#!/bin/bash\nCMD=$(basename \"$0\")\nBASE=DIR/apps\nfor script in \"${BASE}/${CMD}.d\"/*; do\n  \"$script\" || exit 1\ndone\n",
		"apps/prolog.d/vgpu":      "#!/bin/bash\nexec /usr/lib/slurm-vgpu/vgpu-prolog\n",
		"apps/epilog.d/unrelated": "#!/bin/bash\n",
	}, "", nothing},
	{"NVIDIA/bright: run-parts", "slurm.conf", "Prolog=DIR/vgpu-prolog", "Prolog=DIR/prolog", map[string]string{
		"prolog":        "#!/bin/sh -e\nexec run-parts --exit-on-error -- \"$0.d\"\n",
		"prolog.d/vgpu": "#!/bin/sh\nexec /usr/lib/slurm-vgpu/vgpu-prolog\n",
	}, "", nothing},
	{"coreweave/sunk: a folder by a default", "slurm.conf", "Prolog=DIR/vgpu-prolog", "Prolog=DIR/prolog.sh", map[string]string{
		"prolog.sh":     "#!/bin/bash\nPARTS=\"${PARTS:-DIR/prolog.d}\"\nfor s in $(ls \"$PARTS\" | sort); do \"$PARTS/$s\"; done\n",
		"prolog.d/vgpu": "#!/bin/sh\nexec /usr/lib/slurm-vgpu/vgpu-prolog\n",
	}, "", nothing},
	{"a folder whose part is not executable", "slurm.conf", "Prolog=DIR/vgpu-prolog", "Prolog=DIR/prolog.sh", map[string]string{
		"prolog.sh":             "#!/bin/bash\nfor f in DIR/prolog.d/*; do [ -x $f ] && $f; done\n",
		"prolog.d/vgpu.sh 0644": "#!/bin/sh\nexec /usr/lib/slurm-vgpu/vgpu-prolog\n",
	}, "", "Prolog: DIR/slurm.conf:6: Prolog=DIR/prolog.sh does not run vgpu-prolog"},
	{"ours in a comment alone", "slurm.conf", "Prolog=DIR/vgpu-prolog", "Prolog=DIR/prolog.sh", map[string]string{
		"prolog.sh": "#!/bin/bash\n# once: vgpu-prolog\nexit 0\n",
	}, "", "Prolog: DIR/slurm.conf:6: Prolog=DIR/prolog.sh does not run vgpu-prolog"},
	{"a folder that is looked for and not run", "slurm.conf", "Prolog=DIR/vgpu-prolog", "Prolog=DIR/prolog.sh", map[string]string{
		"prolog.sh":       "#!/bin/bash\n[ -d DIR/lib ] && echo DIR/lib\n",
		"lib/vgpu-prolog": "#!/bin/sh\n",
	}, "", "Prolog: DIR/slurm.conf:6: Prolog=DIR/prolog.sh does not run vgpu-prolog"},
	{"aws/aws-parallelcluster-cookbook: a pattern as Prolog=", "slurm.conf", "Prolog=DIR/vgpu-prolog", "Prolog=DIR/scripts/prolog.d/*", map[string]string{
		"scripts/prolog.d/90_site": "#!/bin/bash\n",
		"scripts/prolog.d/95_vgpu": "#!/bin/bash\n/usr/lib/slurm-vgpu/vgpu-prolog\n",
	}, "", nothing},
	{"SlinkyProject/slurm-operator: several Prolog= lines, 24.11", "slurm.conf", "Prolog=DIR/vgpu-prolog", "Prolog=DIR/vgpu-prolog\nProlog=DIR/other.sh", map[string]string{
		"other.sh": "#!/bin/sh\n",
	}, "24.11.5", nothing},
	{"several Prolog= lines before 24.11", "slurm.conf", "Prolog=DIR/vgpu-prolog", "Prolog=DIR/vgpu-prolog\nProlog=DIR/other.sh", map[string]string{
		"other.sh": "#!/bin/sh\n",
	}, "22.05.8", "Prolog: DIR/slurm.conf:7: Prolog=DIR/other.sh does not run vgpu-prolog"},
	{"galaxyproject/ansible-slurm: blanks around =", "slurm.conf", "GresTypes=vgpu", "GresTypes = vgpu", nil, "", nothing},
	{"elasticluster/elasticluster: tabs before =", "slurm.conf", "PrologFlags=Alloc", "PrologFlags\t=\tAlloc", nil, "", nothing},
	{"elasticluster/elasticluster: a node over several lines", "slurm.conf", "CPUs=4 Gres=vgpu:20", "\\\n    CPUs=4 \\\n    Gres=vgpu:20", nil, "", nothing},
	{"stackhpc/ansible-role-openhpc: defaults of nodes", "slurm.conf", "NodeName=n[1-2] CPUs=4 Gres=", "NodeName=DEFAULT State=UNKNOWN RealMemory=1000 \\\n  Gres=vgpu:1\nNodeName=n[1-2] Gres=", nil, "", nothing},
	{"ComputeCanada/puppet-magic_castle: nodes in a file of their own", "slurm.conf", "NodeName=n[1-2] CPUs=4 Gres=vgpu:20,gpumem:287542,gpucores:200", "Include DIR/nodes.conf", map[string]string{
		"nodes.conf": "NodeName=n1 CPUs=4 Gres=vgpu:20,gpumem:287542,gpucores:200\nNodeName=n2 CPUs=4\n",
	}, "", nothing},
	{"aws/aws-parallelcluster-cookbook: includes beside their own files", "slurm.conf", "NodeName=n[1-2] CPUs=4 Gres=vgpu:20,gpumem:287542,gpucores:200", "include cluster/all.conf", map[string]string{
		"cluster/all.conf":       "include queues/q1.conf\n",
		"cluster/queues/q1.conf": "NodeName=n[1-2] CPUs=4 Gres=vgpu:20,gpumem:287542,gpucores:200\n",
	}, "", nothing},
	{"NERSC: Include by the cluster's name", "slurm.conf", "GresTypes=vgpu,gpumem,gpucores", "Include part_%c.conf", map[string]string{
		"part_c.conf": "GresTypes=vgpu,gpumem,gpucores\n",
	}, "", nothing},
	{"Azure/cyclecloud-slurm: Nodename in gres.conf, blanks", "gres.conf", "NodeName=n[1-2] Name=vgpu Count=20", "Nodename = n[1-2]  Name = vgpu Count=20", nil, "", nothing},
	{"openhpc/ohpc: CRLF", "slurm.conf", "JobSubmitPlugins=lua\n", "JobSubmitPlugins=lua\r\nPropagateResourceLimitsExcept=MEMLOCK\r\n", nil, "", nothing},
	{"giovtorres/slurm-docker-cluster: comments behind values", "slurm.conf", "PrologFlags=Alloc,Contain", "PrologFlags=Alloc,Contain # both\n#PrologFlags=X11", nil, "", nothing},
	{"omnivector-solutions/snap-slurm: values in quotes", "slurm.conf", "Prolog=DIR/vgpu-prolog", "Prolog=\"DIR/vgpu-prolog\"", nil, "", nothing},
	{"NVIDIA/pyxis: plugins by a pattern", "plugstack.conf", "include DIR/plugstack.conf.d/*.conf", "include DIR/plugstack.conf.d/*", map[string]string{
		"plugstack.conf.d/a-pyxis.conf": "required /usr/local/lib/slurm/spank_pyxis.so runtime_path=/run/pyxis\n",
	}, "", nothing},
	{"siliu-tacc/slurm_filter: blanks before and behind a plugin", "plugstack.conf", "include DIR/plugstack.conf.d/*.conf",
		"required             /opt/apps/tacc/bin/tacc_welcome.so \ninclude DIR/plugstack.conf.d/*.conf", nil, "", nothing},
	{"edf-hpc/slurm-spank-plugin-oom-score-adj: columns", "plugstack.conf", "include DIR/plugstack.conf.d/*.conf",
		"#\n# required?       plugin                            args\n#\noptional          /usr/lib/slurm/oom-score-adj.so   oom_score_adj=-1000\ninclude DIR/plugstack.conf.d/*.conf", nil, "", nothing},
	{"danielmc81/slurm_config_files: tabs between and behind a node's words", "slurm.conf", "NodeName=n[1-2] CPUs=4 Gres=vgpu:20,gpumem:287542,gpucores:200",
		"NodeName=n[1-2] \tCPUs=4 SocketsPerBoard=1 Gres=vgpu:20,gpumem:287542,gpucores:200 Features=\"gpu,interlagos\"\t", nil, "", nothing},
	{"danielmc81/slurm_config_files: a bracket around one node", "slurm.conf", "NodeName=n[1-2] CPUs=4", "NodeName=n[2]      CPUs=4\nNodeName=n[1] CPUs=4", nil, "", nothing},
	{"danielmc81/slurm_config_files: tabs in gres.conf", "gres.conf", "NodeName=n[1-2] Name=vgpu Count=20", "Nodename=n[1-2] \tName=vgpu\tCount=20", nil, "", nothing},
	{"ualberta-rcg/SoftMig: nodes by two ranges, types with a point", "gres.conf", "NodeName=n[1-2] Name=vgpu Count=20",
		"AutoDetect=off\nNodeName=rack[01-14]-[01-16] Name=gpu Type=l40s File=/dev/nvidia[0-3]\nNodeName=rack[01-14]-[01-16] Name=gpu Type=l40s.2 Count=8   # half a GPU\nNodeName=n[1-2] Name=vgpu Count=20", nil, "", nothing},
	{"slaclab/slurm-docker: AutoDetect on a line of its own", "gres.conf", "NodeName=n[1-2] Name=vgpu Count=20",
		"AutoDetect=nvml\n#Name=gpu Type=titanxp Cores=0\nNodeName=n[1-2] Name=vgpu Count=20", nil, "", nothing},
	{"lower case keys", "slurm.conf", "AccountingStorageTRES=", "accountingstoragetres=", nil, "", nothing},
	{"Name= before NodeName=", "gres.conf", "NodeName=n[1-2] Name=vgpu Count=20", "Name=vgpu NodeName=n[1-2] Count=20", nil, "",
		"gres.conf: DIR/gres.conf:1: NodeName= stands behind Name=, and slurmd does not start with that -> put NodeName= first on that line"},
	{"a blank in a list", "slurm.conf", "PrologFlags=Alloc,Contain", "PrologFlags=Contain, Alloc", nil, "",
		`slurm.conf: DIR/slurm.conf:5: Slurm does not take "Alloc"`},
	{"two settings on a line", "slurm.conf", "JobSubmitPlugins=lua\n", "JobSubmitPlugins=lua ReturnToService=1\n", nil, "",
		`slurm.conf: DIR/slurm.conf:8: Slurm does not take "ReturnToService=1"`},
	{"an include that is not at the beginning", "slurm.conf", "JobSubmitPlugins=lua\n", "JobSubmitPlugins=lua\n  Include none.conf\n", nil, "",
		`slurm.conf: DIR/slurm.conf:9: Slurm does not take "Include none.conf"`},
}

func TestFilesAreReadAsSlurmReadsThem(t *testing.T) {
	for _, shape := range shapes {
		t.Run(shape.name, func(t *testing.T) {
			site, dir := goodSite(t)
			if shape.version != "" {
				site.Version = shape.version
				plugin(t, dir)
			}
			in := func(text string) string { return strings.ReplaceAll(text, "DIR", dir) }
			edit(t, filepath.Join(dir, shape.file), in(shape.old), in(shape.to))
			for name, text := range shape.more {
				name, readable := strings.CutSuffix(name, " 0644")
				write(t, filepath.Join(dir, name), in(text))
				if readable {
					if err := os.Chmod(filepath.Join(dir, name), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			got := findings(t, site, dir)
			if shape.version != "" { // the plugin of the test is for one release
				got = got[:len(got)-strings.Count(strings.Join(got, "\n"), "major and minor")]
			}
			switch {
			case shape.wants == nothing && len(got) == 0:
			case shape.wants != nothing && len(got) == 1 && strings.HasPrefix(got[0], shape.wants):
			default:
				t.Errorf("got %q, want %q", got, shape.wants)
			}
		})
	}
}

// What slurmctld runs with is asked first, and the file is what the next start reads.
func TestSlurmIsAskedForItsSettings(t *testing.T) {
	const running = `Configuration data as of 2026-01-01T00:00:00
AccountingStorageTRES   = cpu,mem,energy,node,billing,fs/disk,vmem,pages,gres/vgpu,gres/gpumem,gres/gpucores,gres/gpuutil
AccountingStorageType   = accounting_storage/slurmdbd
Epilog[0]               = DIR/epilog.sh
GresTypes               = vgpu,gpumem,gpucores
JobContainerType        = (null)
JobSubmitPlugins        = lua
Prolog[0]               = DIR/first.sh
Prolog[1]               = DIR/vgpu-prolog
PrologFlags             = Alloc,Contain

Cgroup Support Configuration:
PrologFlags             = none

Slurmctld(primary) at elsewhere is UP
`
	ask := func(t *testing.T, site *Site, dir, running string) {
		scontrol := filepath.Join(dir, "scontrol")
		write(t, scontrol, "#!/bin/sh\ncase \"$*\" in\n\"show config\") cat \"$0.config\";;\n\"-o show node n1\") echo NodeName=n1 Gres=vgpu:20,gpumem:287542,gpucores:200 State=IDLE;;\n*) exit 1;;\nesac\n")
		write(t, scontrol+".config", strings.ReplaceAll(running, "DIR", dir))
		write(t, filepath.Join(dir, "first.sh"), "#!/bin/sh\n")
		site.Version, site.Config.ShardsSaid = "24.11.5", true
		site.Running = AskSlurm(t.Context(), scontrol, site.SlurmConf, "n1")
	}
	for name, tc := range map[string]struct{ file, old, to, running, want string }{
		"the same":                       {"slurm.conf", "ClusterName=c", "ClusterName=c", running, ""},
		"slurmctld is not yet restarted": {"slurm.conf", "ClusterName=c", "ClusterName=c", strings.Replace(running, "Alloc,Contain", "(null)", 1), "PrologFlags: scontrol show config: PrologFlags lacks Contain -> stop slurmctld, restart slurmd, start slurmctld: DIR/slurm.conf is right, and"},
		"the file was changed since":     {"slurm.conf", "GresTypes=vgpu,gpumem,gpucores", "GresTypes=gpu", running, ""},
		"a node that slurmctld knows":    {"slurm.conf", "NodeName=n[1-2]", "NodeName=n[3-4]", running, ""},
		"wrong in both":                  {"slurm.conf", "JobSubmitPlugins=lua", "JobSubmitPlugins=x", strings.Replace(running, "= lua", "= x", 1), "job_submit: DIR/slurm.conf: JobSubmitPlugins lacks lua"},
	} {
		t.Run(name, func(t *testing.T) {
			site, dir := goodSite(t)
			ask(t, &site, dir, tc.running)
			site.Live = true
			edit(t, filepath.Join(dir, tc.file), tc.old, tc.to)
			got := findings(t, site, dir)
			got = got[:len(got)-strings.Count(strings.Join(got, "\n"), "major and minor")]
			if tc.want == "" && len(got) > 0 || tc.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0], tc.want)) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			all, err := site.Check()
			if _, warnings := Count(all); err != nil || warnings > 0 != (name == "the file was changed since") {
				t.Errorf("warnings: %v, %v", all, err)
			}
		})
	}
}
