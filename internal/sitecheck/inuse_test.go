// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
)

// TestInUse: each line without which jobs fail when the packages are gone, and none of a site that has taken its lines out.
func TestInUse(t *testing.T) {
	const plugin, prolog, epilog = "DIR/plugstack.conf.d/vgpu.conf:2: DIR/spank_vgpu.so", "DIR/slurm.conf:6: Prolog=DIR/vgpu-prolog", "DIR/slurm.conf:7: Epilog=DIR/epilog.sh"
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	out := func(t *testing.T, site *Site, dir string) { // as README has it
		edit(t, site.SlurmConf, "Prolog=", "#")
		edit(t, site.SlurmConf, "Epilog=", "#")
		edit(t, site.SlurmConf, "vgpu:20,gpumem:287542,gpucores:200", "")
		edit(t, filepath.Join(dir, "plugstack.conf.d/vgpu.conf"), "required", "#required")
	}
	for name, tc := range map[string]struct {
		change func(t *testing.T, site *Site, dir string)
		want   []string
	}{
		"all of it":  {func(*testing.T, *Site, string) {}, []string{plugin, prolog, epilog}},
		"none":       {out, nil},
		"no Slurm":   {func(_ *testing.T, site *Site, _ string) { site.SlurmConf = "/does/not/exist/slurm.conf" }, nil},
		"login node": {func(_ *testing.T, site *Site, _ string) { site.Node, site.Inventory = "login", nil }, []string{plugin}},
		"a file that cannot be read": {func(t *testing.T, site *Site, dir string) {
			out(t, site, dir)
			path := filepath.Join(dir, "plugstack.conf.d/vgpu.conf")
			if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o755)); err != nil {
				t.Fatal(err)
			}
		}, []string{"read DIR/plugstack.conf.d/vgpu.conf: is a directory"}},
		"the program is gone already": {func(t *testing.T, site *Site, dir string) {
			out(t, site, dir)
			edit(t, site.SlurmConf, "ClusterName=c", "ClusterName=c\nProlog=/does/not/exist/vgpu-prolog")
		}, []string{"DIR/slurm.conf:2: Prolog=/does/not/exist/vgpu-prolog"}},
		"slurmctld has not read the file": {func(t *testing.T, site *Site, dir string) {
			out(t, site, dir)
			site.Running = &Running{Config: slurmconf.Running("Epilog[0] = " + dir + "/epilog.sh\n")}
		}, []string{"scontrol show config:1: Epilog=DIR/epilog.sh (until slurmctld and slurmd are restarted)"}},
		"the scripts of a controller": {func(t *testing.T, site *Site, dir string) {
			out(t, site, dir)
			edit(t, site.SlurmConf, "SlurmctldHost=elsewhere", "SlurmctldHost="+host)
		}, []string{`DIR/job_submit.lua: local vgpu = dofile("/usr/share/slurm-vgpu/vgpu.lua"`}},
		"a script of those who submit": {func(t *testing.T, site *Site, dir string) {
			out(t, site, dir)
			edit(t, site.SlurmConf, "ClusterName=c", "ClusterName=c\nCliFilterPlugins=cli_filter/lua")
			write(t, filepath.Join(dir, "cli_filter.lua"), "-- dofile(\"/x/vgpu.lua\")\nlocal vgpu = dofile('/usr/share/slurm-vgpu/vgpu.lua')\n")
		}, []string{`DIR/cli_filter.lua: local vgpu = dofile('/usr/share/slurm-vgpu/vgpu.lua'`}},
	} {
		t.Run(name, func(t *testing.T) {
			site, dir := goodSite(t)
			tc.change(t, &site, dir)
			var got []string
			for _, line := range site.InUse() {
				got = append(got, strings.ReplaceAll(line, dir, "DIR"))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
