// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
)

// TestTheFolderOfSlurmdsSockets: slurm.conf names it, or Slurm says which default was built into it; config.yaml has to say the same.
func TestTheFolderOfSlurmdsSockets(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/", link); err != nil {
		t.Fatal(err)
	}
	wrong := func(place, has, remedy string) []string {
		return []string{"SlurmdSpoolDir: " + place + ": slurmd has its sockets in " + has + ", and slurm-vgpu looks for them in /var/spool/slurmd: " +
			"vgpuctl sweep does not work, and prologs ask the controller which jobs live -> config.yaml: slurm: {slurmd_spool_dir: " + remedy + "}"}
	}
	for name, tc := range map[string]struct {
		file, running, ours string
		want                []string
	}{
		"nobody says it":            {"", "", "/var/spool/slurmd", []string{}},
		"the file":                  {"/var/lib/slurm/slurmd", "", "/var/spool/slurmd", wrong("DIR/slurm.conf:2", "/var/lib/slurm/slurmd", "/var/lib/slurm/slurmd")},
		"with the node's name":      {"/x/slurmd.%n", "", "/var/spool/slurmd", wrong("DIR/slurm.conf:2", "/x/slurmd.n1", "/x/slurmd.%n")},
		"the same by its name":      {"/x/slurmd.%n", "", "/x/slurmd.n1", []string{}},
		"the same":                  {"/var/spool/slurmd/", "", "/var/spool/slurmd", []string{}},
		"the same by a link":        {"/", "", link, []string{}},
		"the default of this Slurm": {"", "/var/lib/slurm/slurmd", "/var/spool/slurmd", wrong("scontrol show config:1", "/var/lib/slurm/slurmd", "/var/lib/slurm/slurmd")},
	} {
		t.Run(name, func(t *testing.T) {
			site, dir := goodSite(t)
			if tc.file != "" {
				edit(t, site.SlurmConf, "ClusterName=c", "ClusterName=c\nSlurmdSpoolDir="+tc.file)
			}
			if tc.running != "" {
				data, err := os.ReadFile(site.SlurmConf)
				if err != nil {
					t.Fatal(err)
				}
				site.Running = &Running{Config: slurmconf.Running("SlurmdSpoolDir = " + tc.running + "\n" + string(data))}
			}
			site.Config.Slurm.SlurmdSpoolDir = tc.ours
			if diff := cmp.Diff(tc.want, findings(t, site, dir)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
