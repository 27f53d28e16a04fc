// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package sitecheck holds a site's Slurm files against what slurm-vgpu needs on a node, and says what
// those files should hold instead.
package sitecheck

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
)

// Finding is the answer to one question. OK: nothing has to be done. Warning: nothing is wrong for sure; it could not be looked at, or
// is a way around the limits that the site has left open. OK is false then, and no exit code says it.
type Finding struct {
	Check   string `json:"check"`
	OK      bool   `json:"ok"`
	Warning bool   `json:"warning,omitempty"`
	Says    string `json:"says"`
	Remedy  string `json:"remedy,omitempty"`
}

// Count counts what failed, and the warnings.
func Count(findings []Finding) (bad, warnings int) {
	for _, finding := range findings {
		switch {
		case finding.Warning:
			warnings++
		case !finding.OK:
			bad++
		}
	}
	return bad, warnings
}

// Counts are a node's GRES.
type Counts struct {
	Slices int   `json:"vgpu"`
	MemMiB int64 `json:"gpumem"`
	Cores  int   `json:"gpucores"`
}

// CountsOf is what a node with these GPUs has to offer. GPUs that were lost at boot count nothing: Slurm would
// send jobs that fit nowhere. One that drains, or has failed since, counts, since it comes back.
func CountsOf(inv device.Inventory, slicesPerGPU int, memOvercommit float64) Counts {
	var c Counts
	for _, gpu := range inv.GPUs {
		if !gpu.IsCounted() {
			continue
		}
		c.Slices += slicesPerGPU
		c.MemMiB += int64(math.Floor(float64(gpu.MemMiB) * memOvercommit))
		c.Cores += 100
	}
	return c
}

// String is the counts as they stand in slurm.conf.
func (c Counts) String() string {
	return fmt.Sprintf("vgpu:%d,gpumem:%d,gpucores:%d", c.Slices, c.MemMiB, c.Cores)
}

// Site is where a site's files are, and what they should describe.
type Site struct {
	Node          string
	SlurmConf     string
	GresConf      string // "": beside SlurmConf
	PlugstackConf string // "": as slurm.conf says, else beside it
	JobSubmit     string // "": job_submit.lua beside SlurmConf
	CgroupConf    string // "": beside SlurmConf
	Enroot        string // the folder of enroot's configuration; "" is not looked at
	Config        config.Config
	Inventory     *device.Inventory // nil: the GPUs are not known, and counts are not checked
	// Version is the running Slurm, such as "22.05.8"; "" if it is not known.
	Version   string
	Database  *Database // nil: there is none on this machine
	Running   *Running  // nil: slurmctld was not asked
	IsNode    bool      // this machine has GPUs, or somebody has named the node, whatever slurm.conf says
	Live      bool      // Slurm should run by now
	ConfigDir string    // the folder of config.yaml; "": not looked at
}

// MariaDB is where distributions have the server.
const MariaDB = "/usr/sbin/mariadbd"

// ErrNoSlurmConf says that nothing can be checked.
var ErrNoSlurmConf = errors.New("slurm.conf cannot be read")

// DefaultSlurmConf is what Slurm's own commands would read.
func DefaultSlurmConf() string {
	if path := os.Getenv("SLURM_CONF"); path != "" { //nolint:forbidigo // which Slurm is asked
		return path
	}
	for _, path := range []string{"/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf",
		"/run/slurm/conf/slurm.conf", "/var/spool/slurmd/conf-cache/slurm.conf"} { // the latter two: configless
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return "/etc/slurm/slurm.conf"
}

// sent says that the controller sent slurm.conf and what stands beside it: changes there last until it does so again. slurmd keeps
// them in a folder of this name, sackd in Slurm's own.
func (s Site) sent() bool {
	dir, err := filepath.EvalSymlinks(filepath.Dir(s.SlurmConf))
	return err == nil && (filepath.Base(dir) == "conf-cache" || dir == "/run/slurm/conf")
}

// Report collects findings.
type Report struct{ Findings []Finding }

// OK: nothing has to be done.
func (r *Report) OK(check, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{Check: check, OK: true, Says: fmt.Sprintf(format, args...)})
}

// Bad comes with what to do about it.
func (r *Report) Bad(check, remedy, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{Check: check, Says: fmt.Sprintf(format, args...), Remedy: remedy})
}

// Warn is about what could not be looked at, or is open because the site says nothing else.
func (r *Report) Warn(check, remedy, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{Check: check, Warning: true, Says: fmt.Sprintf(format, args...), Remedy: remedy})
}

// site is a Site with its files read.
type site struct {
	Site
	Report
	slurm slurmconf.File // what is looked at: the file, or what slurmctld says
	file  slurmconf.File
	want  Counts
}

// Check answers every question about the site's files, in the order in which an admin would repair
// them. The error wraps ErrNoSlurmConf if there is nothing to check.
func (s Site) Check() ([]Finding, error) {
	conf, err := slurmconf.Read(s.SlurmConf)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoSlurmConf, err)
	}
	s.beside(conf)
	c := &site{Site: s, slurm: conf, file: conf}
	if s.Inventory != nil {
		c.want = CountsOf(*s.Inventory, s.Config.SlicesPerGPU, s.Config.MemOvercommit)
	}
	roles := c.roles()
	c.unasked()
	c.configFolder()
	c.taken()
	c.twice()
	c.asked(c.gresTypes)
	c.asked(c.selectType)
	if roles.compute {
		c.nodeLine()
		c.gresConf()
		c.takesJobs()
		c.wholeGPUs()
		c.couldPick()
		c.drain()
	}
	c.asked(c.accounting)
	c.database()
	c.asked(c.prologFlags)
	c.asked(c.containers)
	if roles.compute {
		c.cgroups()
		c.asked(func() { c.program("Prolog", "vgpu-prolog") })
		c.asked(func() { c.program("Epilog", "vgpu-epilog") })
		c.timeouts()
		c.spoolDir()
	}
	c.asked(c.jobSubmit)
	if roles.controller {
		c.cluster()
	}
	c.plugstack()
	if roles.compute {
		c.enroot()
	}
	if roles.compute && !s.Live { // doctor has said it, whatever becomes of slurm.conf
		c.Findings = append(c.Findings, OpenWays(s.Config)...)
	}
	return c.Findings, nil
}

// beside fills in where the files lie that nobody has named.
func (s *Site) beside(conf slurmconf.File) {
	if s.PlugstackConf == "" {
		s.PlugstackConf, _, _ = conf.Value("PlugStackConfig")
	}
	for path, name := range map[*string]string{&s.PlugstackConf: "plugstack.conf", &s.GresConf: "gres.conf", &s.JobSubmit: "job_submit.lua", &s.CgroupConf: "cgroup.conf"} {
		if *path == "" {
			*path = filepath.Join(filepath.Dir(s.SlurmConf), name)
		}
	}
}

// readOptional reads a file that need not exist.
func readOptional(path string) (slurmconf.File, error) {
	file, err := slurmconf.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, statErr := os.Stat(path); errors.Is(statErr, fs.ErrNotExist) { // not one that it includes
			return slurmconf.File{Path: path}, nil
		}
	}
	return file, err
}
