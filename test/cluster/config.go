// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mem is what slurm.conf claims a node has; nothing here asks for host memory.
const nodeMemMiB = 1 << 20

// The nodes with whole GPUs, and what their config.yaml says about that.
const (
	wholeNode = "w1"
	splitNode = "s1"
	shardNode = "h1" // where Slurm has shards that are good enough
)

var ofNode = map[string]string{wholeNode: "whole_gpus: true\n", splitNode: "slurm_gpus: [1]\n", shardNode: "shards: true\n"}

func (c *Cluster) ifWhole(text string) string {
	if c.Whole {
		return text
	}
	return ""
}

func (c *Cluster) ifShards(text string) string {
	if c.Shards {
		return text
	}
	return ""
}

func (c *Cluster) countsOf(node string) string {
	if counts, ok := c.gres.counts[node]; ok {
		return counts
	}
	return c.gres.counts[""]
}

func (c *Cluster) slurmConf() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	c.daemonLines(line)
	line(jobLines)
	c.vgpuLines(line)
	for _, node := range c.Nodes {
		line("NodeName=%s NodeAddr=127.0.0.1 NodeHostname=%s Port=%d CPUs=%d RealMemory=%d Gres=%s",
			node, c.host, c.port(node), c.CPUs, nodeMemMiB, c.countsOf(node))
	}
	line("PartitionName=vgpu Nodes=%s Default=YES MaxTime=60 DefaultTime=5 OverSubscribe=NO", strings.Join(c.Nodes[:c.DefaultNodes], ","))
	// Its jobs preempt those of the others.
	line("PartitionName=high Nodes=%s MaxTime=60 DefaultTime=5 OverSubscribe=NO PriorityTier=10", strings.Join(c.Nodes[:c.DefaultNodes], ","))
	if c.DefaultNodes < c.NodeCount {
		line("PartitionName=all Nodes=%s MaxTime=60 DefaultTime=5 OverSubscribe=NO", strings.Join(c.Nodes[:c.NodeCount], ","))
	}
	if c.Whole {
		line("PartitionName=whole Nodes=%s MaxTime=60 DefaultTime=5 OverSubscribe=NO", wholeNode)
		line("PartitionName=split Nodes=%s MaxTime=60 DefaultTime=5 OverSubscribe=NO", splitNode)
		line("PartitionName=each Nodes=%s MaxTime=60 DefaultTime=5 OverSubscribe=NO", strings.Join(c.Nodes[:c.NodeCount+2], ","))
	}
	if c.Shards {
		line("PartitionName=shard Nodes=%s MaxTime=60 DefaultTime=5 OverSubscribe=NO", shardNode)
	}
	return b.String()
}

// daemonLines are about who the daemons are and where their files stand.
func (c *Cluster) daemonLines(line func(format string, args ...any)) {
	h := c.Home
	line("ClusterName=%s", c.Name)
	line("SlurmctldHost=%s(127.0.0.1)", c.host)
	line("SlurmctldPort=%d", c.port("slurmctld"))
	line("SlurmUser=root")
	line("SlurmdUser=root")
	line("AuthType=auth/munge")
	// cred_expire is also the shortest time between two starts of a requeued job.
	line("AuthInfo=socket=%s,cred_expire=6", h.Path("munge", "socket"))
	line("CredType=cred/munge")
	line("PluginDir=%s", c.pluginDir)
	line("StateSaveLocation=%s", h.Path("state"))
	line("SlurmctldPidFile=%s", h.Path("slurmctld.pid"))
	line("SlurmctldLogFile=%s", h.Path("log", "slurmctld.log"))
	line("SlurmdPidFile=%s", h.Path("slurmd-%n.pid"))
	line("SlurmdLogFile=%s", h.Path("log", "slurmd-%n.log"))
	line("SlurmdSpoolDir=%s", h.Path("spool", "slurmd-%n"))
	line("SlurmctldDebug=verbose")
	line("SlurmdDebug=verbose")
	line("SlurmdParameters=config_overrides")
	if c.Unaccounted {
		line("AccountingStorageType=accounting_storage/none")
		return
	}
	line("AccountingStorageType=accounting_storage/slurmdbd")
	line("AccountingStorageHost=127.0.0.1")
	line("AccountingStoragePort=%d", c.port("slurmdbd"))
	line("AccountingStoragePass=%s", h.Path("munge", "socket"))
}

// jobLines are about jobs: started at once, and with no more than a small machine has.
const jobLines = `ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=2,sched_min_interval=0,batch_sched_delay=0,default_queue_depth=1000,max_rpc_cnt=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
DefMemPerCPU=64
MailProg=/bin/true
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
KillWait=2
InactiveLimit=0
WaitTime=0
SlurmdTimeout=600
SlurmctldTimeout=600
MessageTimeout=30
UnkillableStepTimeout=150
MaxArraySize=1001
PrologFlags=Alloc,Contain`

// vgpuLines are what slurm-vgpu asks for.
func (c *Cluster) vgpuLines(line func(format string, args ...any)) {
	switch {
	case c.Unaccounted: // slurmctld takes none then
	case c.Plain:
		line("AccountingStorageTRES=gres/vgpu")
	default:
		// gpuutil: where gpumem is tracked without it, Slurm's gpu/nvml writes out of bounds.
		line("AccountingStorageTRES=%s%sgres/vgpu,gres/gpumem,gres/gpucores,gres/gpuutil", c.ifWhole("gres/gpu,"), c.ifShards("gres/shard,"))
	}
	if !c.Plain {
		line("JobSubmitPlugins=lua")
		line("CliFilterPlugins=cli_filter/lua")
		line("PlugStackConfig=%s", c.Home.Path("etc", "plugstack.conf"))
	}
	if c.Prolog != "" {
		line("Prolog=%s", c.Prolog)
		line("Epilog=%s", c.Epilog)
	}
	if c.Plain {
		line("GresTypes=vgpu")
	} else {
		line("GresTypes=gpu,%svgpu,gpumem,gpucores", c.ifShards("shard,"))
	}
}

func (c *Cluster) slurmdbdConf() string {
	return fmt.Sprintf(`AuthType=auth/munge
AuthInfo=socket=%[1]s/munge/socket
DbdAddr=127.0.0.1
DbdHost=%[2]s
DbdPort=%[3]d
SlurmUser=root
DebugLevel=verbose
LogFile=%[1]s/log/slurmdbd.log
PidFile=%[1]s/slurmdbd.pid
PluginDir=%[4]s
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=%[5]d
StorageUser=slurm
StoragePass=%[6]s
StorageLoc=slurm_acct_db
CommitDelay=1
`, c.Home, c.host, c.port("slurmdbd"), c.pluginDir, c.port("mariadb"), c.password)
}

func (c *Cluster) configYAML() string {
	isolation := c.Isolation
	h := c.Home
	text := fmt.Sprintf(`run_dir: %[1]s/run/%%n
spool_dir: %[1]s/vgpu-spool/%%n
library: %[14]s
isolation: %[2]s
on_no_fit: %[3]s
max_requeues: %[4]d
slices_per_gpu: %[5]d
mem_overcommit: %[6]g
sizes: {half: {mem: 50%%, cores: 50}, small: {mem: 8G}}
device_dir: %[7]s
nvml_library: %[8]q
log: {level: info, file: %[1]s/log/vgpu.log}
slurm:
  scontrol: %[9]s
  sacctmgr: %[10]s
  sacct: %[11]s
  squeue: %[12]s
  scancel: %[13]s
  slurmd_spool_dir: %[1]s/spool/slurmd-%%n
  controller_timeout: 20s
report: {enabled: %[15]t, retry_for: 1h}
`, h, isolation, c.OnNoFit, c.MaxRequeues, c.SlicesPerGPU, c.Overcommit, c.gres.deviceDir, c.gres.nvmlLibrary,
		tool("scontrol"), tool("sacctmgr"), tool("sacct"), tool("squeue"), tool("scancel"), h.Program("libslurm-vgpu.so"), !c.Unaccounted)
	return text + c.ExtraConfig
}

// ConfigPath is config.yaml: at its usual place when that is the cluster's own /etc.
func (c *Cluster) ConfigPath() string {
	if c.Home.InPlace() {
		return c.Home.Path("etc", "config.yaml")
	}
	return "/etc/slurm-vgpu/config.yaml"
}

// ConfigOf is a node's config.yaml, which is all nodes' but where it has one of its own.
func (c *Cluster) ConfigOf(node string) string {
	if _, own := ofNode[node]; own {
		return c.ConfigPath() + "." + node
	}
	return c.ConfigPath()
}

// WriteConfig writes config.yaml anew; programs started from now on read it.
func (c *Cluster) WriteConfig() error {
	if err := os.MkdirAll(filepath.Dir(c.ConfigPath()), 0o755); err != nil {
		return err
	}
	for node, more := range ofNode {
		if err := os.WriteFile(c.ConfigOf(node), []byte(c.configYAML()+more), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(c.ConfigPath(), []byte(c.configYAML()), 0o644)
}

// wrapper is a prolog or epilog for slurm.conf, which takes no arguments there.
func (c *Cluster) wrapper(program string) string {
	return fmt.Sprintf("#!/bin/sh\nconfig=%s\n[ -e $config.$SLURMD_NODENAME ] && config=$config.$SLURMD_NODENAME\nexec %s --config $config\n",
		c.ConfigPath(), c.Home.Program(program))
}
