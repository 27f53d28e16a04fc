// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
)

func TestEnrootHasItsMounts(t *testing.T) {
	packaged, err := os.ReadFile("../../packaging/containers/enroot.fstab")
	if err != nil {
		t.Fatal(err)
	}
	self := strings.SplitAfter(string(packaged), "silent\n")[0]
	for name, tc := range map[string]struct {
		files     map[string]string
		isolation string
		says      string // "" nothing, "ok" that all is well
	}{
		"not installed": {},
		"without it":    {files: map[string]string{"10-system.fstab": "/proc /proc none rbind\n"}, says: "mounts /run/slurm-vgpu/self and /etc/ld.so.preload: "},
		"in two files":  {files: map[string]string{"10-a.fstab": self, "20-b.fstab": strings.TrimPrefix(string(packaged), self)}, says: "ok"},
		"half of it":    {files: map[string]string{"10-a.fstab": self}, says: "mounts /etc/ld.so.preload: "},
		"as a comment":  {files: map[string]string{"10-a.fstab": "#" + strings.ReplaceAll(string(packaged), "\n", "\n#")}, says: "mounts /run/slurm-vgpu/self and "},
		"no fstab":      {files: map[string]string{"50-slurm-vgpu.conf": string(packaged)}, says: "mounts /run/slurm-vgpu/self and "},
		"as packaged":   {files: map[string]string{"50-slurm-vgpu.fstab": string(packaged)}, says: "ok"},
		"preload":       {files: map[string]string{"10-a.fstab": ""}, isolation: config.IsolationPreload},
	} {
		t.Run(name, func(t *testing.T) {
			c := &site{Site: Site{Enroot: filepath.Join(t.TempDir(), "enroot"), Config: config.Default()}}
			if tc.isolation != "" {
				c.Config.Isolation = tc.isolation
			}
			for file, text := range tc.files {
				path := filepath.Join(c.Enroot, "mounts.d", file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			c.enroot()
			switch {
			case tc.says == "" && len(c.Findings) == 0, tc.says == "ok" && len(c.Findings) == 1 && c.Findings[0].OK:
			case tc.says != "" && len(c.Findings) == 1 && !c.Findings[0].OK && strings.Contains(c.Findings[0].Says, tc.says) && c.Findings[0].Remedy == EnrootRemedy:
			default:
				t.Errorf("got %+v, want %q", c.Findings, tc.says)
			}
		})
	}
}
