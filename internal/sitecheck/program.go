// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/installed"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
)

// Before this release the last Prolog= of slurm.conf counted alone, and so with Epilog= (seen: 22.05.8, 24.11.5).
const firstWithSeveral = "24.11.0"

// program checks that slurmd runs one of ours, itself or from a script.
func (c *site) program(key, ours string) {
	remedy := "slurm.conf: " + key + "=" + installed.Usual(ours)
	lines := c.slurm.All(key)
	if len(lines) == 0 {
		c.Bad(key, remedy, "%s: there is no %s=", c.slurm.Path, key)
		return
	}
	if parseVersion(c.Version) < parseVersion(firstWithSeveral) {
		lines = lines[len(lines)-1:]
	}
	var values []string
	found := false
	for _, at := range lines {
		paths, ok := c.programs(key, at, remedy)
		if !ok {
			return
		}
		for _, path := range paths {
			found = found || runs(path, ours)
		}
		values = append(values, at.Pairs[0].Value)
	}
	if !found {
		c.Bad(key, remedy+", or call "+installed.Usual(ours)+" from the script and return its exit code", "%s: %s=%s does not run %s",
			lines[0].Place(), key, strings.Join(values, ", "), ours)
		return
	}
	c.OK(key, "%s=%s", key, strings.Join(values, ", "))
}

// programs are the files that a line names; false: one of them cannot be started, as a finding says.
func (c *site) programs(key string, at slurmconf.Line, remedy string) (paths []string, ok bool) {
	value := at.Pairs[0].Value
	paths = []string{value}
	if !filepath.IsAbs(value) {
		paths = []string{filepath.Join(filepath.Dir(c.SlurmConf), value)} // configless
	}
	if strings.ContainsAny(value, "*?[") {
		var err error
		if paths, err = filepath.Glob(value); err != nil || len(paths) == 0 {
			c.Bad(key, remedy, "%s: %s=%s matches no file", at.Place(), key, value)
			return nil, false
		}
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			c.Bad(key, remedy, "%s: %v", at.Place(), err)
			return nil, false
		}
		if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			c.Bad(key, "chmod 755 "+path, "%s: %s=%s is not executable; slurmd would drain the node", at.Place(), key, path)
			return nil, false
		}
	}
	return paths, true
}
