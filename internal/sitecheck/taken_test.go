// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"strings"
	"testing"
)

// TestASettingThatStandsTwice: pasted under what the site has, it replaces that without a word of Slurm's but in logs.
func TestASettingThatStandsTwice(t *testing.T) {
	for text, want := range map[string]string{
		"ClusterName=c": "",
		"ClusterName=c\nJobSubmitPlugins=throttle":                    "DIR/slurm.conf:2 and DIR/slurm.conf:9: JobSubmitPlugins stands there twice",
		"ClusterName=c\nAccountingStorageType=accounting_storage/dbd": "DIR/slurm.conf:2 and DIR/slurm.conf:11: AccountingStorageType stands there twice",
		"ClusterName=c\nGresTypes+=gpu":                               "",
		"ClusterName=c\nProlog=/bin/true":                             "", // Slurm 24.11 runs all of them
	} {
		site, dir := goodSite(t)
		site.Version = "24.11.5"
		edit(t, site.SlurmConf, "ClusterName=c", text)
		all, err := site.Check()
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, f := range all {
			if f.Check == "slurm.conf" && f.Warning {
				got += strings.ReplaceAll(f.Says, dir, "DIR")
			}
		}
		if got != want && (want == "" || !strings.HasPrefix(got, want)) {
			t.Errorf("%s: %q", text, got)
		}
	}
}
