// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"os"
	"slices"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
)

// AccountingTRES is what AccountingStorageTRES must name. Slurm 23.02 and later have a gres/gpumem of
// their own, which belongs to gres/gpuutil: tracking one without the other makes slurmstepd write
// before the start of an array.
var AccountingTRES = []string{"gres/vgpu", "gres/gpumem", "gres/gpucores", "gres/gpuutil"}

func (c *site) accounting() {
	kind, _, _ := c.slurm.Value("AccountingStorageType")
	if !strings.EqualFold(kind, "accounting_storage/slurmdbd") {
		c.Bad("accounting", "slurm.conf: AccountingStorageType=accounting_storage/slurmdbd", "%s: without slurmdbd sacct shows neither the GRES nor the usage of jobs", c.slurm.Path)
		return
	}
	have := c.slurm.Words("AccountingStorageTRES")
	var missing []string
	for _, name := range AccountingTRES {
		if slices.Contains(have, name) || name == "gres/gpuutil" && slices.Contains(have, "gres/gpu") { // which brings gpuutil along
			continue
		}
		missing = append(missing, name)
	}
	if missing == nil {
		c.OK("accounting", "AccountingStorageTRES has %s", strings.Join(have, ","))
		return
	}
	says := "sacct does not show it"
	if slices.Contains(missing, "gres/gpuutil") {
		says = "gres/gpumem without gres/gpuutil makes Slurm 23.02 and later corrupt memory where AutoDetect=nvml is used"
	}
	c.Bad("accounting", "slurm.conf: AccountingStorageTRES="+strings.Join(append(have, missing...), ","),
		"%s: AccountingStorageTRES lacks %s: %s", c.slurm.Path, strings.Join(missing, ", "), says)
}

func (c *site) prologFlags() {
	flags := c.slurm.Words("PrologFlags")
	remedy := "slurm.conf: PrologFlags=Alloc,Contain"
	switch {
	case !slices.Contains(flags, "contain"):
		c.Bad("PrologFlags", remedy, "%s: PrologFlags lacks Contain", c.slurm.Path)
	case !slices.Contains(flags, "alloc"): // Contain implies it; said for who reads the file
		c.OK("PrologFlags", "PrologFlags has Contain, which implies Alloc")
	default:
		c.OK("PrologFlags", "PrologFlags has Alloc and Contain")
	}
	if slices.Contains(flags, "nohold") {
		c.Bad("PrologFlags", remedy, "%s: PrologFlags has NoHold, which lets steps start before the prolog is done", c.slurm.Path)
	}
}

// containers: a mount namespace that Slurm makes for each job must be one that the plugin knows.
func (c *site) containers() {
	for _, key := range []string{"JobContainerType", "NamespaceType"} { // the latter since 25.11
		value, at, ok := c.slurm.Value(key)
		_, kind, _ := strings.Cut(strings.ToLower(value), "/")
		if !ok || !c.Config.IsStrict() || kind == "" || kind == "none" {
			continue
		}
		if kind != "tmpfs" {
			c.Bad(key, "slurm.conf: "+key+"="+strings.TrimSuffix(strings.ToLower(value), kind)+"tmpfs, or none",
				"%s: with %s=%s only a job's tasks are isolated: its task epilogs, and the files of --input and --output, reach every GPU of the node",
				at.Place(), key, value)
			continue
		}
		c.OK(key, "%s=%s: tasks, task epilogs and files of a step are isolated", key, value)
	}
}

// cgroups: the driver holds jobs by the cgroups that Slurm makes for them.
func (c *site) cgroups() {
	if c.Config.Isolation != config.IsolationWall {
		return
	}
	kind, at, ok := c.slurm.Value("ProctrackType")
	if ok && !strings.EqualFold(kind, "proctrack/cgroup") { // the default
		c.Bad("wall", "slurm.conf: ProctrackType=proctrack/cgroup", "%s: with %s Slurm has put no step into its job's cgroup when isolation: wall needs it", at.Place(), kind)
		return
	}
	conf, err := readOptional(c.CgroupConf)
	if err != nil {
		c.Bad("wall", "make it readable", "%v", err)
		return
	}
	if plugin, at, ok := conf.Value("CgroupPlugin"); ok && !strings.EqualFold(plugin, "cgroup/v2") && !strings.EqualFold(plugin, "autodetect") {
		c.Bad("wall", "cgroup.conf: CgroupPlugin=cgroup/v2", "%s: isolation: wall needs cgroup/v2, not %s", at.Place(), plugin)
		return
	}
	c.OK("wall", "Slurm gives each job a cgroup before its first task")
}

// wholeSaid is the line of a site's job_submit.lua that says what becomes of jobs that ask for whole GPUs.
var wholeSaid = pattern.Late(`(?m)^[^-\n]*whole_gpus\s*=\s*["']?(refuse|function|true|false)`)

// NoWholeGPUs says that slurm.conf can be read, and none of its nodes has gres/gpu.
func NoWholeGPUs(slurmConf string) bool {
	conf, err := slurmconf.Read(slurmConf)
	if err != nil || len(conf.All("NodeName")) == 0 {
		return false
	}
	_, some := withGPUs(conf)
	return !some
}

// withGPUs is the first line that gives nodes gres/gpu.
func withGPUs(conf slurmconf.File) (slurmconf.Line, bool) {
	for _, line := range conf.All("NodeName") {
		if gres, _ := line.Get("gres"); offersGPU().MatchString(gres) {
			return line, true
		}
	}
	return slurmconf.Line{}, false
}

// wholeRefused is about users who type --gpus where no node has gres/gpu. Without it in GresTypes Slurm's commands refuse that themselves, and
// the script is never asked (seen with 22.05 and 24.11).
func (c *site) wholeRefused(script, path string, table nodeTable) {
	if line, some := withGPUs(c.file); some {
		if table.noGPUs {
			c.Bad("cluster.lua", "take gres_gpu out of it", "%s says that no node has gres/gpu, and %s has nodes with some: jobs that ask for these are refused", path, line.Place())
		}
		return
	}
	says := ""
	if found := wholeSaid().FindStringSubmatch(script); found != nil {
		says = found[1]
	}
	var remedies []string
	refuses := says == "refuse" || says == "function" || says == "" && table.noGPUs
	switch {
	case refuses:
	case says == "":
		remedies = append(remedies, path+": gres_gpu = false")
	default:
		remedies = append(remedies, c.JobSubmit+`: vgpu.whole_gpus = "refuse"`)
	}
	types, asked := c.slurm.Words("GresTypes"), ""
	if !slices.Contains(types, request.GRESGPU) {
		remedies = append(remedies, "slurm.conf: GresTypes="+strings.Join(append([]string{request.GRESGPU}, types...), ","))
		if refuses {
			asked = ": GresTypes lacks gpu, so that Slurm does not call job_submit.lua"
		}
	}
	if len(remedies) > 0 {
		c.Warn("job_submit", strings.Join(remedies, ", and "),
			"no node has gres/gpu, and a user who types --gpus=1 gets Slurm's \"Invalid generic resource (gres) specification\" without a hint at the option to write%s", asked)
	}
}

func (c *site) jobSubmit() {
	plugins := c.slurm.Words("JobSubmitPlugins")
	if !slices.Contains(plugins, "lua") && !slices.Contains(plugins, "job_submit/lua") {
		c.Bad("job_submit", "slurm.conf: JobSubmitPlugins="+strings.Join(append(plugins, "lua"), ","),
			"%s: JobSubmitPlugins lacks lua: --vgpu-mem and --vgpu-cores become no GRES", c.slurm.Path)
		return
	}
	script, err := os.ReadFile(c.JobSubmit)
	if err != nil {
		// Only the controller needs it; nodes often do not have it.
		if !c.onController() {
			c.OK("job_submit", "JobSubmitPlugins has lua; the script is on the controller")
			return
		}
		c.Bad("job_submit", "copy job_submit.lua from /usr/share/slurm-vgpu to "+c.JobSubmit, "%v", err)
		return
	}
	if !strings.Contains(string(script), "vgpu") {
		c.Bad("job_submit", "add the lines of /usr/share/slurm-vgpu/job_submit.lua to it", "%s does not use slurm-vgpu", c.JobSubmit)
		return
	}
	c.OK("job_submit", "%s uses slurm-vgpu", c.JobSubmit)
}
