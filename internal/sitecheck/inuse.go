// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
)

// InUse says by which lines Slurm still uses slurm-vgpu on this machine: without its files jobs fail. None: they can be taken away. A file
// that cannot be read is one of the lines, as it may name slurm-vgpu.
func (s Site) InUse() (lines []string) {
	conf, err := slurmconf.Read(s.SlurmConf)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		lines = append(lines, err.Error())
	}
	s.beside(conf)
	c := &site{Site: s, slurm: conf, file: conf}
	plugins, err := slurmconf.Plugstack(s.PlugstackConf)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		lines = append(lines, err.Error())
	}
	if i := slurmconf.PluginIndex(plugins, slurmconf.PluginName); i >= 0 {
		lines = append(lines, plugins[i].Place+": "+plugins[i].Path)
	}
	if c.computes(conf) {
		lines = append(lines, c.started("Prolog", "vgpu-prolog")...)
		lines = append(lines, c.started("Epilog", "vgpu-epilog")...)
	}
	if c.onController() {
		lines = append(lines, c.scripted("JobSubmitPlugins", s.JobSubmit)...)
	}
	return append(lines, c.scripted("CliFilterPlugins", filepath.Join(filepath.Dir(s.SlurmConf), "cli_filter.lua"))...)
}

// started is the line by which slurmd starts a program of ours.
func (c *site) started(key, ours string) []string {
	return c.usesIn(key, func(line slurmconf.Line) (string, bool) {
		value := line.Pairs[0].Value
		path := value
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(c.SlurmConf), path) // configless
		}
		paths, _ := filepath.Glob(path)
		used := filepath.Base(path) == ours || slices.ContainsFunc(paths, func(path string) bool { return runs(path, ours) })
		return line.Place() + ": " + key + "=" + value, used
	})
}

// scripted is the line of a script of Slurm's Lua plugins that loads ours.
func (c *site) scripted(key, script string) []string {
	text, _ := readText(script)
	load := ourScripts().FindString(text)
	return c.usesIn(key, func(line slurmconf.Line) (string, bool) {
		lua := slices.ContainsFunc(slurmconf.File{Lines: []slurmconf.Line{line}}.Words(key), func(word string) bool {
			return filepath.Base(word) == "lua" // "job_submit/lua" as well
		})
		return script + ": " + load, lua && load != ""
	})
}

// usesIn are the lines of a setting that use says it of: those of slurm.conf, or else those with which slurmctld runs until it reads that file.
func (c *site) usesIn(key string, use func(slurmconf.Line) (string, bool)) (uses []string) {
	for _, line := range c.file.All(key) {
		if says, used := use(line); used {
			uses = append(uses, says)
		}
	}
	if uses != nil || c.Running == nil || c.Running.Err != nil {
		return uses
	}
	for _, line := range c.Running.Config.All(key) {
		if says, used := use(line); used {
			uses = append(uses, says+" (until slurmctld and slurmd are restarted)")
		}
	}
	return uses
}
