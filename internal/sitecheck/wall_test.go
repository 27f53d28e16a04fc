// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"path/filepath"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
)

// With isolation: wall, Slurm has to have put each step into a cgroup of v2 before the plugin looks.
func TestAWallNeedsSlurmsCgroups(t *testing.T) {
	for _, tc := range []struct {
		isolation, slurm, cgroup string
		found, ok                bool
	}{
		{"strict", "ProctrackType=proctrack/linuxproc", "CgroupPlugin=cgroup/v1", false, false},
		{"wall", "", "", true, true},
		{"wall", "ProctrackType=proctrack/cgroup", "CgroupPlugin=autodetect", true, true},
		{"wall", "ProctrackType=proctrack/cgroup", "CgroupPlugin=cgroup/v2", true, true},
		{"wall", "ProctrackType=proctrack/cgroup", "CgroupPlugin=cgroup/v1", true, false},
		{"wall", "ProctrackType=proctrack/linuxproc", "", true, false},
	} {
		site, dir := goodSite(t)
		site.Config.Isolation = tc.isolation
		edit(t, filepath.Join(dir, "slurm.conf"), "ClusterName=c", "ClusterName=c\n"+tc.slurm)
		edit(t, filepath.Join(dir, "cgroup.conf"), "ConstrainDevices=yes", "ConstrainDevices=yes\n"+tc.cgroup)
		findings, err := site.Check()
		if err != nil {
			t.Fatal(err)
		}
		found, ok := false, false
		for _, f := range findings {
			if f.Check == config.IsolationWall {
				found, ok = true, f.OK
			}
		}
		if found != tc.found || ok != tc.ok {
			t.Errorf("%+v: found %v, ok %v", tc, found, ok)
		}
	}
}
